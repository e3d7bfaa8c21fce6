/* attention: queries over the keys and values in the KV cache. */
#include "attend_rows.h"
#include "words.h"

enum { ATTENTION_Y, ATTENTION_Q };
enum { ATTENTION_SINKS, ATTENTION_BIAS };
enum { ATTENTION_STATE, ATTENTION_TAIL };
enum { ATTENTION_N_HEADS, ATTENTION_N_KV_HEADS, ATTENTION_SCALE, ATTENTION_MASK, ATTENTION_WINDOW,
       ATTENTION_SOFTCAP };
/* As in plan/tiers.py: a query reads at least TIER_TAIL rows from the tail; the border moves by
 * TIER_BATCH. */
enum { TIER_TAIL = 256, TIER_BATCH = 64 };

INLINE uint32_t first_tail_row(uint32_t state_row) {
    return state_row < TIER_TAIL ? 0 : (state_row + 1 - TIER_TAIL) / TIER_BATCH * TIER_BATCH;
}

/* Keys that a row sees in a state without tail. */
static keys_seen seen_in_state(const attend_op *a, uint32_t row) {
    const uint32_t *words = row_words(a->run, row), self = words[ROW_STATE_ROW];
    const uint32_t *group = group_words(a->run, words[ROW_SEQUENCE], a->op->states[ATTENTION_STATE].group);
    const uint32_t kept = group[GROUP_WRITE], window = (uint32_t)a->op->attrs[ATTENTION_WINDOW];
    keys_seen seen = {.start = kept, .end = self + 1, .border = UINT32_MAX, .self = self};
    if ((uint32_t)a->op->attrs[ATTENTION_MASK] == WORD_held) seen.end = group[GROUP_HELD];
    if ((uint32_t)a->op->attrs[ATTENTION_MASK] == WORD_chunked) {
        const uint32_t chunk = self / window * window;
        if (chunk > kept) seen.start = chunk;
    } else if (window && self + 1 > window + kept) seen.start = self + 1 - window;
    return seen;
}

/* Keys that a row sees in a state with tail. */
static keys_seen seen_in_tiers(const attend_op *a, uint32_t row) {
    keys_seen seen = seen_in_state(a, row);
    const uint32_t sequence = row_words(a->run, row)[ROW_SEQUENCE];
    seen.border = first_tail_row(seen.self);
    seen.tail_start = group_words(a->run, sequence, a->op->states[ATTENTION_TAIL].group)[GROUP_WRITE];
    return seen;
}

/* Address of keys or values. A state without values (MLA) has the values in the first columns of the keys. */
static key_place place_in_state(const attend_op *a, uint32_t row, uint32_t tier, uint32_t tensor) {
    const cam_state *state = &a->op->states[tier == TAIL ? ATTENTION_TAIL : ATTENTION_STATE];
    const uint32_t held = state->at[tensor] ? tensor : KEYS;
    const uint32_t sequence = row_words(a->run, row)[ROW_SEQUENCE];
    const uint32_t table_row = group_words(a->run, sequence, state->group)[GROUP_READ];
    return (key_place){
        .at = state->at[held],
        .row_bytes = state->row_bytes[held],
        .table = AT(const uint32_t, state->table) + (uint64_t)table_row * state->table_cols,
        .unit_rows = state->unit_rows,
        .type = state->type,
        .head_cols = state->cols[held] / a->n_kv_heads,
    };
}

/* The bias is indexed by the distance back; its last row serves all larger distances. */
static attend_op attention_of(const cam_op *op, const cam_run *run) {
    const cam_state *state = &op->states[ATTENTION_STATE];
    attend_op a = {
        .op = op, .run = run, .q = &op->views[ATTENTION_Q], .y = &op->views[ATTENTION_Y],
        .sinks = AT(const float, op->weights[ATTENTION_SINKS].at),
        .n_kv_heads = (uint32_t)op->attrs[ATTENTION_N_KV_HEADS],
        .most_chunks = (state->table_cols * state->unit_rows + CHUNK_KEYS - 1) / CHUNK_KEYS,
        .seen = op->states[ATTENTION_TAIL].at[KEYS] ? seen_in_tiers : seen_in_state,
        .place = place_in_state,
    };
    set_heads(&a, (uint32_t)op->attrs[ATTENTION_N_HEADS], op->attrs[ATTENTION_SCALE]);
    set_bias(&a.how, &op->weights[ATTENTION_BIAS], -1, 0, (int32_t)op->weights[ATTENTION_BIAS].rows - 1);
    a.how.softcap = (float)op->attrs[ATTENTION_SOFTCAP];
    return a;
}

static void op_attention(const cam_op *op, const cam_run *run, uint32_t thread) {
    const attend_op a = attention_of(op, run);
    attend_all(&a, thread);
}

static uint64_t scratch_attention(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    const attend_op a = attention_of(op, NULL);
    return attend_bytes(&a, n_threads);
}

/* tables, copy, kv_write: updates of page tables, copies of units, writes of keys and values. */
#include "codecs.h"
#include "run.h"

enum { UPDATE_GROUP, UPDATE_TABLE_ROW, UPDATE_INDEX, UPDATE_UNIT, UPDATE_WORDS };
enum { COPY_GROUP, COPY_SOURCE, COPY_DESTINATION, COPY_ROWS, COPY_WORDS };
enum { KV_WRITE_K, KV_WRITE_V };

static void op_tables(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_state *state = &op->states[0];
    const uint32_t *update = run->step + run->program->updates_at;
    for (uint32_t i = 0; i < run->step[STEP_UPDATES] && thread == 0; i++, update += UPDATE_WORDS) {
        uint32_t *table = AT(uint32_t, state->table) + (uint64_t)state->table_cols * update[UPDATE_TABLE_ROW];
        if (update[UPDATE_GROUP] == state->group) table[update[UPDATE_INDEX]] = update[UPDATE_UNIT];
    }
}

/* Copies the first rows of a unit to another unit, in one tensor of one layer. */
static void copy_rows(const cam_state *state, uint32_t layer, uint32_t tensor, const uint32_t *copy) {
    const uint64_t row_bytes = state->row_bytes[tensor], unit_bytes = state->unit_rows * row_bytes;
    const uint64_t layer_bytes = (uint64_t)state->n_units * state->unit_rows *
                                 ((uint64_t)state->row_bytes[0] + state->row_bytes[1]);
    uint8_t *units = AT(uint8_t, state->at[tensor] + layer * layer_bytes);
    memcpy(units + copy[COPY_DESTINATION] * unit_bytes, units + copy[COPY_SOURCE] * unit_bytes,
           copy[COPY_ROWS] * row_bytes);
}

/* Copies units in all layers; the record describes the first layer. Threads share the layers. */
static void op_copy(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_state *state = &op->states[0];
    const cam_range layers = share(state->n_layers, run, thread);
    const uint32_t *copy = run->step + run->program->copies_at;
    for (uint32_t i = 0; i < run->step[STEP_COPIES]; i++, copy += COPY_WORDS)
        for (uint32_t layer = layers.start; layer < layers.end; layer++)
            for (uint32_t tensor = 0; tensor < STATE_TENSORS; tensor++)
                if (copy[COPY_GROUP] == state->group && state->at[tensor])
                    copy_rows(state, layer, tensor, copy);
}

/* Row in the state of a row of the step, through its sequence's page table. */
static uint64_t state_row_of(const cam_state *state, const cam_run *run, uint32_t row) {
    const uint32_t *words = row_words(run, row), at = words[ROW_STATE_ROW];
    const uint32_t table_row = group_words(run, words[ROW_SEQUENCE], state->group)[GROUP_READ];
    const uint32_t *table = AT(const uint32_t, state->table) + (uint64_t)table_row * state->table_cols;
    return (uint64_t)table[at / state->unit_rows] * state->unit_rows + at % state->unit_rows;
}

static void op_kv_write(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_state *state = &op->states[0];
    const cam_range rows = share(n_rows(run, &op->views[KV_WRITE_K]), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++)
        for (uint32_t tensor = KV_WRITE_K; tensor <= KV_WRITE_V; tensor++) {
            const cam_view *view = &op->views[tensor];
            const uint64_t at = state->at[tensor] + state_row_of(state, run, t) * state->row_bytes[tensor];
            if (view->at) codecs[state->type].encode(row_of(view, t), AT(uint8_t, at), view->cols);
        }
}

/* embed, embed_position: rows of embedding tables. */
#include "codecs.h"
#include "run.h"
#include "simd.h"

enum { EMBED_Y, EMBED_WEIGHT = 0, EMBED_TOKENS = 0, EMBED_SCALE = 0 };
enum { EMBED_POSITION_X, EMBED_POSITION_WEIGHT = 0, EMBED_POSITION_CHANNEL = 0 };

/* Decodes a row of a table in FORM_ROWS to float32. An index past the end counts as row 0. */
static void table_row(const cam_weight *weight, uint32_t row, float *values) {
    const uint64_t at = row < weight->rows ? row : 0;
    const uint8_t *stored = AT(const uint8_t, weight->at);
    const uint64_t row_bytes = codec_row_bytes(weight->type, weight->cols);
    codecs[weight->type].decode(stored + at * row_bytes, values, weight->cols);
}

/* Token id of a state row in the sequence's ring; `slot` is GROUP_READ or GROUP_WRITE. */
static uint32_t *ring_id(const cam_state *ring, const cam_run *run, uint32_t sequence, uint32_t slot,
                         uint32_t state_row) {
    const uint64_t first = (uint64_t)group_words(run, sequence, ring->group)[slot] * ring->unit_rows;
    return AT(uint32_t, ring->at[0]) + first + state_row % ring->unit_rows;
}

static uint32_t token_of(const cam_state *ring, const cam_run *run, uint32_t row) {
    const uint32_t *words = row_words(run, row);
    if (words[ROW_SOURCE] != FROM_RING) return words[ROW_VALUE];
    return *ring_id(ring, run, words[ROW_SEQUENCE], GROUP_READ, words[ROW_STATE_ROW]);
}

/* Writes the token ids of a sequence's last rows, at most the ring's length. */
static void write_ids(const cam_state *ring, const cam_run *run, uint32_t sequence) {
    const uint32_t *words = sequence_words(run, sequence), n = words[SEQUENCE_N_ROWS];
    const uint32_t end = words[SEQUENCE_FIRST_ROW] + n, last = n < ring->unit_rows ? n : ring->unit_rows;
    for (uint32_t row = end - last; row < end; row++) {
        const uint32_t *of_row = row_words(run, row);
        uint32_t *id = ring_id(ring, run, sequence, GROUP_WRITE, of_row[ROW_STATE_ROW]);
        if (of_row[ROW_SOURCE] == FROM_ID) *id = of_row[ROW_VALUE];
    }
}

/* All rows read the ring before the meeting; ids are written after it. */
static void op_embed(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *y = &op->views[EMBED_Y];
    const cam_state *ring = &op->states[EMBED_TOKENS];
    const float scale = (float)op->attrs[EMBED_SCALE];
    const cam_range rows = share(n_rows(run, y), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        float *to = row_of(y, t);
        table_row(&op->weights[EMBED_WEIGHT], token_of(ring, run, t), to);
        for (uint32_t i = 0; i < y->cols; i++) to[i] *= scale;
    }
    cam_meet(run, thread);
    for (uint32_t s = 0; s < run->step[STEP_SEQUENCES] && thread == 0; s++) write_ids(ring, run, s);
}

/* Floats of a decoded row, rounded up to whole cache lines. */
INLINE uint64_t position_floats(const cam_op *op) {
    return whole_lines(op->views[EMBED_POSITION_X].cols * sizeof(float)) / sizeof(float);
}

static void op_embed_position(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[EMBED_POSITION_X];
    const uint32_t channel = (uint32_t)op->attrs[EMBED_POSITION_CHANNEL];
    const cam_range rows = share(n_rows(run, x), run, thread);
    float *row = AT(float, run->program->scratch) + thread * position_floats(op);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        table_row(&op->weights[EMBED_POSITION_WEIGHT], row_words(run, t)[ROW_POSITIONS + channel], row);
        for (uint32_t i = 0; i < x->cols; i++) row_of(x, t)[i] += row[i];
    }
}

static uint64_t scratch_embed_position(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return n_threads * position_floats(op) * sizeof(float);
}

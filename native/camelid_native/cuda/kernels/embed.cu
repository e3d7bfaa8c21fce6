/* embed: rows of a matrix by token or position. A thread has a block of 32 columns. */
#include "product.h"

#define THREADS 64

/* The token of a row: its id, or the sequence's id in the ring. */
DEVICE u32 token_of(Step step, Row row, Ring tokens) {
    if (row.source != FROM_RING) return row.value;
    const u32 slot = group_at(step, row.sequence, tokens.group).read;
    return tokens.ids[slot * tokens.rows + row.state_row % tokens.rows];
}

/* Ids of a sequence's last rows are written, as many as the ring holds, so that no two rows write one place. */
DEVICE void keep_token(Step step, int t, Row row, Ring tokens) {
    const u32 *sequence = sequence_at(step, row.sequence);
    if (row.source != FROM_ID || (u32)(t + tokens.rows) < sequence[0] + sequence[1]) return;
    const u32 slot = group_at(step, row.sequence, tokens.group).write;
    tokens.ids[slot * tokens.rows + row.state_row % tokens.rows] = row.value;
}

DEVICE int last_row(const Matrix &m, u32 row) { return row < (u32)m.rows ? (int)row : m.rows - 1; }

KERNEL(embed, THREADS)(Step step, View y, Matrix weight, Ring tokens, float scale) {
    const int t = BLOCK_Y, b = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, y, t)) return;
    const Row row = row_at(step, t);
    const u32 token = token_of(step, row, tokens);
    if (b == 0) keep_token(step, t, row, tokens);
    if (BLOCK * b >= weight.cols) return;
    float values[BLOCK];
    values_at(weight, last_row(weight, token), b, values);
    float *out = row_of(y, t) + BLOCK * b;
    UNROLL
    for (int i = 0; i < BLOCK; i++)
        if (BLOCK * b + i < weight.cols) out[i] = scale * values[i];
}

KERNEL(embed_position, THREADS)(Step step, View x, Matrix weight, int channel) {
    const int t = BLOCK_Y, b = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, x, t) || BLOCK * b >= weight.cols) return;
    float values[BLOCK];
    values_at(weight, last_row(weight, position_of(step, t, channel)), b, values);
    float *out = row_of(x, t) + BLOCK * b;
    UNROLL
    for (int i = 0; i < BLOCK; i++)
        if (BLOCK * b + i < weight.cols) out[i] = out[i] + values[i];
}

/* heads_write: columns of keys and values to the row's page, in the type of the state, and to a tail of halves. */
#pragma once
#include "heads.h"
#include "matrix.h"

/* Writes n <= head_dim columns of keys or values from their column `first` on. */
template <class Rows>
DEVICE void put_columns(Pool pool, Step step, Row own, const float *x, bool is_value, int first, int n,
                        int head_dim) {
    const u32 place = pool_row(pool, group_at(step, own.sequence, pool.group), own.state_row);
    u8 *to = (is_value ? pool.values : pool.keys) + place * Rows::bytes(is_value ? pool.v_width : pool.width);
#pragma unroll 1
    for (int start = 0; start < head_dim; start += GROUP_LANES) {
        const int c = start + LANE;
        Rows::store(to, first + c, c < n ? x[c] : 0.0f, c < n);
    }
}

/* Turns n columns of x from `column` on, a head of queries or keys, and writes them if they are keys or values. Of a
 * state with blocks, `column` is a multiple of KV_BLOCK among the keys or values. All threads of the block call it. */
DEVICE void write_head(const Heads &h, Pool state, Pool tail, Step step, int row, float *x, int column, int n) {
    const Row own = row_at(step, row);
    const bool is_value = column >= h.turned;
    turn_head(h, x + column, column, own.position, is_value ? 0 : n);
    SYNC();  /* a lane stores columns that others have turned */
    const int first = column - (is_value ? h.turned : h.turned - h.k_cols), n_put = first < 0 ? 0 : n;
    put_columns<KvRows>(state, step, own, x + column, is_value, first, n_put, h.head_dim);
    if (tail.keys) put_columns<HalfRows>(tail, step, own, x + column, is_value, first, n_put, h.head_dim);
}

/* The last block of a head to finish turns and writes the head. A block has N_ROWS rows of the matrix, CLASSES threads a
 * row, and N_TOKENS rows of y. All threads of the block call it. */
template <int N_ROWS, int N_TOKENS>
DEVICE void write_last(const Heads &h, Pool state, Pool tail, Step step, View y, int rows, u32 *counters) {
    const int head = BLOCK_X * N_ROWS / h.head_dim, token = BLOCK_Y * N_TOKENS;
    if (!is_last_block(counters + BLOCK_Y * (rows / h.head_dim) + head, h.head_dim / N_ROWS)) return;
#pragma unroll 1
    for (int first = 0; first < N_TOKENS; first += CLASSES * N_ROWS / GROUP_LANES) {
        const int own = token + first + THREAD / GROUP_LANES;
        const bool is_row = !is_unused(step, y, own);
        const int row = is_row ? own : token;
        write_head(h, state, tail, step, row, row_of(y, row), head * h.head_dim, is_row ? h.head_dim : 0);
    }
}

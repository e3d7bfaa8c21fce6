/* heads_write: columns of keys and values to the row's page, in the type of the state. */
#pragma once
#include "heads.h"

/* Turns n columns of x from `column` on, a head of queries or keys, or only writes them if they are values. Of a state
 * with blocks, `column` is a multiple of KV_BLOCK among the keys or values. All threads of the block call it. */
DEVICE void write_head(const Heads &h, Pool state, Step step, int row, float *x, int column, int n) {
    const Row token = row_at(step, row);
    const bool is_value = column >= h.turned;
    if (!is_value && n > 0) turn_head(h, x + column, column, token.position);
    SYNC();  /* a lane stores columns that others have turned */
    const int first = column - (is_value ? h.turned : h.turned - h.k_cols);
    if (first < 0 || n <= 0) return;
    const u32 place = pool_row(state, group_at(step, token.sequence, state.group), token.state_row);
    u8 *to = (is_value ? state.values : state.keys) + place * KvRows::bytes(is_value ? state.v_width : state.width);
    for (int start = 0; start < n; start += GROUP_LANES) {
        const int c = start + LANE;
        KvRows::store(to, first + c, c < n ? x[column + c] : 0.0f, c < n);
    }
}

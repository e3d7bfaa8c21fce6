/* norm_rope_write: norm_rope, then keys and values go to the row's page in the state's type. A block per row and head,
 * or THREADS columns of values. Of a type with blocks, heads begin at multiples of KV_BLOCK columns. */
#include "norm_rope.h"

/* Writes columns [first, first + n) of keys or values. All threads call it. */
DEVICE void put_columns(u8 *to, const float *from, int first, int n) {
    for (int start = 0; start < n; start += THREADS) {
        const int c = start + THREAD;
        KvRows::store(to, first + c, c < n ? from[c] : 0.0f, c < n);
    }
}

KERNEL(norm_rope_write, THREADS)(Step step, View x, const float *q_gain, const float *k_gain, const float *fine,
                                 const float *coarse, Pool state, int turned, int k_cols, int v_cols, int head_dim,
                                 int offset, int next, int pitch, int pairs, int fine_rows, int coarse_rows,
                                 float eps) {
    const int row = BLOCK_Y, first = BLOCK_X * head_dim, keys_at = turned - k_cols;
    if (is_unused(step, x, row)) return;
    SHARED(float, head, MOST_HEAD);
    const Row token = row_at(step, row);
    const u32 place = pool_row(state, group_at(step, token.sequence, state.group), token.state_row);
    if (first >= turned) {
        const int column = (BLOCK_X - turned / head_dim) * THREADS, left = v_cols - column;
        u8 *to = state.values + place * KvRows::bytes(state.v_width);
        return put_columns(to, row_of(x, row) + turned + column, column, left < THREADS ? left : THREADS);
    }
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch};
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    norm_rope_head(head, row_of(x, row), first, q_gain, k_gain, heads, angles, token.position, eps);
    if (first >= keys_at)
        put_columns(state.keys + place * KvRows::bytes(state.width), head, first - keys_at, head_dim);
}

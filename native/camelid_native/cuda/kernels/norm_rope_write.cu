/* norm_rope_write: norm_rope, then keys and values go to the row's page. A group of 32 lanes has a head of queries or
 * keys, or as many values. */
#include "heads_write.h"

#define THREADS 128

KERNEL(norm_rope_write, THREADS)(Step step, View x, const float *q_gain, const float *k_gain, const float *fine,
                                 const float *coarse, Pool state, int turned, int k_cols, int v_cols, int head_dim,
                                 int offset, int next, int pitch, int pairs, int fine_rows, int coarse_rows,
                                 float eps) {
    const int row = BLOCK_Y, column = (BLOCK_X * THREADS + THREAD) / GROUP_LANES * head_dim;
    if (is_unused(step, x, row)) return;
    const int left = turned + v_cols - column, n = left < 0 ? 0 : left < head_dim ? left : head_dim;
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch, q_gain, k_gain, eps, angles};
    write_head(heads, state, Pool{}, step, row, row_of(x, row), column, n);
}

/* The same on the columns of a product y, also to a tail. */
KERNEL(qkv_write, THREADS)(Step step, View y, const float *q_gain, const float *k_gain, const float *fine,
                           const float *coarse, Pool state, Pool tail, int turned, int k_cols, int v_cols,
                           int head_dim, int offset, int next, int pitch, int pairs, int fine_rows, int coarse_rows,
                           float head_eps) {
    const int row = BLOCK_Y, column = (BLOCK_X * THREADS + THREAD) / GROUP_LANES * head_dim;
    if (is_unused(step, y, row)) return;
    const int left = turned + v_cols - column, n = left < 0 ? 0 : left < head_dim ? left : head_dim;
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch, q_gain, k_gain, head_eps, angles};
    write_head(heads, state, tail, step, row, row_of(y, row), column, n);
}

/* norm_rope: norms and rotations of the heads of queries and keys, in place. */
#include "heads.h"

#define THREADS 128

KERNEL(norm_rope, THREADS)(Step step, View x, const float *q_gain, const float *k_gain, const float *fine,
                           const float *coarse, int turned, int k_cols, int head_dim, int offset, int next, int pitch,
                           int pairs, int fine_rows, int coarse_rows, float eps) {
    const int row = BLOCK_Y, column = (BLOCK_X * THREADS + THREAD) / GROUP_LANES * head_dim;
    if (is_unused(step, x, row)) return;
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch, q_gain, k_gain, eps, angles};
    const int n = column < turned ? head_dim : 0;
    turn_head(heads, row_of(x, row) + column, column, position_of(step, row, 0), n);
}

/* norm_rope: norms and rotations of the heads of queries and keys, in place. A block per head and row. */
#include "norm_rope.h"

KERNEL(norm_rope, THREADS)(Step step, View x, const float *q_gain, const float *k_gain, const float *fine,
                           const float *coarse, int turned, int k_cols, int head_dim, int offset, int next, int pitch,
                           int pairs, int fine_rows, int coarse_rows, float eps) {
    const int row = BLOCK_Y;
    if (is_unused(step, x, row)) return;
    SHARED(float, head, MOST_HEAD);
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch};
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const u32 position = position_of(step, row, 0);
    norm_rope_head(head, row_of(x, row), BLOCK_X * head_dim, q_gain, k_gain, heads, angles, position, eps);
}

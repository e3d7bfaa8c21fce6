/* qkv: y = weight @ x + bias for queries, keys and values, also after a deferred norm; then queries and keys are
 * rotated, and keys and values written to their page. A block has BLOCK_ROWS rows of the matrix and BLOCK_TOKENS
 * rows of x. */
#include "qkv.h"

KERNEL(qkv, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, const u8 *codes, const uint4 *factors,
                     const float *fine, const float *coarse, Pool state, int norm_cols, float eps, int k_cols,
                     int v_cols, int head_dim, int offset, int next, int pairs, int fine_rows, int coarse_rows,
                     const float *scales) {
    const int token = BLOCK_Y * BLOCK_TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const int n = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
    const Parts all = {x, codes, factors, 1, 0};
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Columns columns = {weight.rows, k_cols, v_cols, head_dim, offset, next};
    const Norm norm = {x, token, norm_cols, eps, scales};
    const Input in = input_of(all, weight.cols, 0, token, n);
    const Qkv task = {step, weight, in, norm, columns, angles, state, y, bias, token, 0};
    outputs(task);
}

/* qkv_heads: y = weight @ x + bias for queries, keys and values, also after a deferred norm. The last block of a head
 * then normalizes and rotates it, and writes keys and values to their page, in any type of state, and to a tail. A
 * block has BLOCK_ROWS rows of the matrix, which are of one head, and BLOCK_TOKENS rows of x. */
#include "linear.h"
#include "heads_write.h"

KERNEL(qkv_heads, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, const u8 *codes,
                           const uint4 *factors, const float *q_gain, const float *k_gain, const float *fine,
                           const float *coarse, Pool state, Pool tail, u32 *counters, int norm_cols, float eps,
                           int turned, int k_cols, int head_dim, int offset, int next, int pitch, int pairs,
                           int fine_rows, int coarse_rows, float head_eps) {
    const int token = BLOCK_Y * BLOCK_TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const Parts all = {x, codes, factors, 1, 0};
    const Input in = input_of(all, weight.cols, 0, token, left < BLOCK_TOKENS ? left : BLOCK_TOKENS);
    const Norm norm = {x, token, norm_cols, eps};
    outputs(Linear{weight, in, norm, row_of(y, token), bias, 0, weight.rows, y.stride, 0});
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch, q_gain, k_gain, head_eps, angles};
    write_last<BLOCK_ROWS, BLOCK_TOKENS>(heads, state, tail, step, y, weight.rows, counters);
}

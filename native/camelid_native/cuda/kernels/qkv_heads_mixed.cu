/* qkv_heads_mixed: qkv_heads with values by a weight of another type: blocks of the namespace `first`, then of
 * `second`. */
#include "deferred.h"
#include "heads_write.h"
#include "input.h"

KERNEL(qkv_heads_mixed, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, Matrix v_weight,
                                 const float *v_bias, const u8 *codes, const uint4 *factors, const float *q_gain,
                                 const float *k_gain, const float *fine, const float *coarse, Pool state, Pool tail,
                                 u32 *counters, int norm_cols, float eps, int turned, int k_cols, int head_dim,
                                 int offset, int next, int pitch, int pairs, int fine_rows, int coarse_rows,
                                 float head_eps) {
    const int token = BLOCK_Y * TOKENS, left = count(step, y.rows_word) - token, rows = weight.rows + v_weight.rows;
    if (left <= 0) return;
    const Parts all = {x, codes, factors, 1, 0};
    const Input in = input_of(all, weight.cols, 0, token, left < TOKENS ? left : TOKENS);
    const Norm norm = {x, token, norm_cols, eps};
    float *to = row_of(y, token);
    if (BLOCK_X * BLOCK_ROWS < weight.rows)
        first::outputs(first::Linear{weight, in, norm, to, bias, 0, weight.rows, y.stride, 0});
    else
        second::outputs(second::Linear{v_weight, in, norm, to + weight.rows, v_bias, 0, v_weight.rows, y.stride,
                                       weight.rows});
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Heads heads = {turned, k_cols, head_dim, offset, next, pitch, q_gain, k_gain, head_eps, angles};
    write_last<BLOCK_ROWS, TOKENS>(heads, state, tail, step, y, rows, counters);
}

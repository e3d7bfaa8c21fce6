/* qkv_mixed: qkv with values by a weight of another type: blocks of the namespace `first`, then of `second`. */
#include "deferred.h"
#include "input.h"
#include "turn.h"

KERNEL(qkv_mixed, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, Matrix v_weight,
                           const float *v_bias, const u8 *codes, const uint4 *factors, const float *fine,
                           const float *coarse, Pool state, int norm_cols, float eps, int k_cols, int v_cols,
                           int head_dim, int offset, int next, int pairs, int fine_rows, int coarse_rows) {
    const int token = BLOCK_Y * TOKENS, left = count(step, y.rows_word) - token, rows = weight.rows + v_weight.rows;
    if (left <= 0) return;
    const Parts all = {x, codes, factors, 1, 0};
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Norm norm = {x, token, norm_cols, eps};
    const Input in = input_of(all, weight.cols, 0, token, left < TOKENS ? left : TOKENS);
    if (BLOCK_X * BLOCK_ROWS < weight.rows)
        first::outputs(first::Qkv{step, weight, in, norm, {rows, k_cols, v_cols, head_dim, offset, next}, angles, state,
                                  y, bias, token, 0});
    else
        second::outputs(second::Qkv{step, v_weight, in, norm, {rows, k_cols, v_cols, head_dim, offset, next}, angles,
                                    state, y, v_bias, token, weight.rows});
}

/* glu: y = act(gate) * up, where gate and up are the halves of weight @ x, also after a deferred norm. Lanes of a row
 * have a row of each half. */
#include "act.h"
#include "deferred.h"
#include "product.h"
#include "rounding.h"

#define THREADS 256
#define BLOCK_ROWS (THREADS / CLASSES)

struct Glu { Matrix weight; Input in; Norm norm; float *y; Codes8 rounded; int rows, y_stride, act; };

template <int N> DEVICE void tile(const Glu &task, Number<N>) {
    const int row = BLOCK_X * BLOCK_ROWS + THREAD / CLASSES, last = task.rows - 1, known = row < last ? row : last;
    const int rows[2] = {known, known + task.rows};
    float sums[2][N];
    multiply<N, 2>(task.weight, rows, task.in, sums);
    scale_sums<THREADS>(task.norm, task.in.n, sums);
    UNROLL
    for (int t = 0; t < N; t++)
        if (CLASS == t && t < task.in.n && row <= last)
            task.y[(long long)t * task.y_stride + row] = gated(task.act, sums[0][t], sums[1][t]);
    const int at = BLOCK_X * BLOCK_ROWS;
    if (task.rounded.words) round_tile(task.y + at, task.y_stride, task.in.n, task.rounded, task.rows, at);
}

KERNEL(linear_glu, THREADS)(Step step, View y, View x, Matrix weight, const u8 *codes, const uint4 *factors,
                            u32 *out_codes, uint4 *out_factors, int rows, int act, int norm_cols, float eps) {
    const int token = BLOCK_Y * TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const int n = left < TOKENS ? left : TOKENS;
    const Parts all = {x, codes, factors, 1, 0};
    const Norm norm = {x, token, norm_cols, eps};
    const Codes8 rounded = rounded_from(out_codes, out_factors, token, rows);
    const Input in = input_of(all, weight.cols, 0, token, n);
    const Glu task = {weight, in, norm, row_of(y, token), rounded, rows, y.stride, act};
    for_rows<1>(task, n);
}

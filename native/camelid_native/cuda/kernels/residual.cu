/* residual: y = y + scale * (weight @ x + bias); with a gain also z = deferred norm(y): y * gain, then the sum of
 * squares of each QUAD of y. A block has 32 rows of the matrix and TOKENS rows of x; a group of 32 lanes has the four
 * rows of a QUAD. */
#include "deferred.h"
#include "product.h"
#include "rounding.h"

#define THREADS 256
#define BLOCK_ROWS (THREADS / CLASSES)

struct Residual {
    Matrix weight;
    Input in;
    View y, z;
    const float *bias, *gain;
    Codes8 rounded;
    int token;
    float scale;
};

DEVICE float quad_sum(float v) {
    v = v + shuffle_xor(v, CLASSES);
    return v + shuffle_xor(v, 2 * CLASSES);
}

template <int N> DEVICE void tile(const Residual &task, Number<N>) {
    const int row = BLOCK_X * BLOCK_ROWS + THREAD / CLASSES, last = task.weight.rows - 1;
    const int rows[1] = {row < last ? row : last};
    float sums[1][N], v = 0.0f;
    multiply<N, 1>(task.weight, rows, task.in, sums);
    const bool is_own = CLASS < task.in.n && row <= last;
    UNROLL
    for (int t = 0; t < N; t++) v = CLASS == t ? sums[0][t] : v;
    float *y = row_of(task.y, task.token + (is_own ? CLASS : 0)) + rows[0];
    v = is_own ? *y + task.scale * (task.bias ? v + task.bias[row] : v) : 0.0f;
    const float square = quad_sum(v * v);
    if (is_own) *y = v;
    if (!task.gain) return;
    if (is_own) {
        float *z = row_of(task.z, task.token + CLASS);
        z[row] = v * task.gain[row];
        if (row % QUAD == 0) z[task.weight.rows + row / QUAD] = square;
    }
    const int at = BLOCK_X * BLOCK_ROWS;
    const float *z = row_of(task.z, task.token) + at;
    if (task.rounded.words) round_tile(z, task.z.stride, task.in.n, task.rounded, task.weight.rows, at);
}

KERNEL(residual, THREADS)(Step step, View y, View x, View z, Matrix weight, const float *bias, const float *gain,
                          const u8 *codes, const uint4 *factors, u32 *out_codes, uint4 *out_factors, float scale) {
    const int token = BLOCK_Y * TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const int n = left < TOKENS ? left : TOKENS;
    const Parts all = {x, codes, factors, 1, 0};
    const Input in = input_of(all, weight.cols, 0, token, n);
    const Codes8 rounded = rounded_from(out_codes, out_factors, token, weight.rows);
    const Residual task = {weight, in, y, z, bias, gain, rounded, token, scale};
    for_rows<1>(task, n);
}

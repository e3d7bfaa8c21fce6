/* linear: y = weight @ x + bias, also after a deferred norm, and one matrix per head. A block has 16 rows of the matrix
 * and TOKENS rows of x. */
#include "deferred.h"
#include "product.h"

#define THREADS 128
#define BLOCK_ROWS (THREADS / CLASSES)

struct Linear { Matrix weight; Input in; Norm norm; float *y; const float *bias; int first, rows, y_stride; };

/* Rows behind the last are computed as the last one and not written. */
template <int N> DEVICE void tile(const Linear &task, Number<N>) {
    const int row = BLOCK_X * BLOCK_ROWS + THREAD / CLASSES, last = task.rows - 1;
    const int rows[1] = {task.first + (row < last ? row : last)};
    float sums[1][N];
    multiply<N, 1>(task.weight, rows, task.in, sums);
    scale_sums<THREADS>(task.norm, task.in.n, sums);
    UNROLL
    for (int t = 0; t < N; t++)
        if (CLASS == t && t < task.in.n && row <= last)
            task.y[(long long)t * task.y_stride + row] = task.bias ? sums[0][t] + task.bias[row] : sums[0][t];
}

KERNEL(linear, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, const u8 *codes,
                        const uint4 *factors, int rows, int parts, int part_step, int y_step, int norm_cols,
                        float eps) {
    const int token = BLOCK_Y * TOKENS, left = count(step, y.rows_word) - token, head = BLOCK_Z;
    if (left <= 0) return;
    const int n = left < TOKENS ? left : TOKENS;
    const Parts all = {x, codes, factors, parts, part_step};
    const Input in = input_of(all, weight.cols, head, token, n);
    const Norm norm = {x, token, norm_cols, eps};
    const Linear task = {weight, in, norm, row_of(y, token) + head * y_step, bias, head * rows, rows, y.stride};
    for_rows<1>(task, n);
}

/* The columns of each head behind its product, unchanged. */
KERNEL(pass, THREADS)(Step step, View y, View x, int rows, int y_step, int part_step, int cols) {
    const int row = BLOCK_Y, head = BLOCK_Z, c = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, y, row) || c >= y_step - rows) return;
    row_of(y, row)[head * y_step + rows + c] = row_of(x, row)[head * part_step + cols + c];
}

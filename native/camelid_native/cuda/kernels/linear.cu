/* linear: y = weight @ x + bias, also after a deferred norm, and one matrix per head. A block has BLOCK_ROWS rows
 * of the matrix and BLOCK_TOKENS rows of x. */
#include "linear.h"

KERNEL(linear, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, const u8 *codes,
                        const uint4 *factors, int rows, int parts, int part_step, int y_step, int norm_cols,
                        float eps, const float *scales) {
    const int token = BLOCK_Y * BLOCK_TOKENS, left = count(step, y.rows_word) - token, head = BLOCK_Z;
    if (left <= 0) return;
    const int n = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
    const Parts all = {x, codes, factors, parts, part_step};
    const Input in = input_of(all, weight.cols, head, token, n);
    const Norm norm = {x, token, norm_cols, eps, scales};
    const Linear task = {weight, in, norm, row_of(y, token) + head * y_step, bias, head * rows, rows, y.stride};
    outputs(task);
}

/* The columns of each head behind its product, unchanged. */
KERNEL(pass, THREADS)(Step step, View y, View x, int rows, int y_step, int part_step, int cols) {
    const int row = BLOCK_Y, head = BLOCK_Z, c = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, y, row) || c >= y_step - rows) return;
    row_of(y, row)[head * y_step + rows + c] = row_of(x, row)[head * part_step + cols + c];
}

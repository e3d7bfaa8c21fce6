/* experts: y[slot] = weight[ids[slot]] @ x[slot] + bias[ids[slot]]. A block has 16 rows of a slot's matrix. */
#include "product.h"

#define THREADS 128
#define BLOCK_ROWS (THREADS / CLASSES)

/* A row of x has one vector a slot, or one for all slots (parts = 1). */
KERNEL(linear_experts, THREADS)(Step step, View y, View x, View ids, Matrix weight, const float *bias, const u8 *codes,
                                const uint4 *factors, int rows, int parts, int part_step) {
    const int token = BLOCK_Y, slot = BLOCK_Z, row = BLOCK_X * BLOCK_ROWS + THREAD / CLASSES;
    if (is_unused(step, y, token)) return;
    const int last = weight.rows / rows - 1, id = (int)row_of(ids, token)[slot];
    const int expert = id < 0 ? 0 : id < last ? id : last, known = row < rows ? row : rows - 1;
    const Parts all = {x, codes, factors, parts, part_step};
    const int both[1] = {expert * rows + known};
    float sums[1][1];
    multiply<1, 1>(weight, both, input_of(all, weight.cols, slot % parts, token, 1), sums);
    if (CLASS || row >= rows) return;
    row_of(y, token)[slot * rows + row] = bias ? sums[0][0] + bias[expert * rows + row] : sums[0][0];
}

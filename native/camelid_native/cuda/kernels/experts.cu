/* experts: y[slot] = weight[ids[slot]] @ x[slot] + bias[ids[slot]]. A block has 16 rows of a slot's matrix. */
#define THREADS 128
#define BLOCK_ROWS (THREADS / 8)
#include "product.h"
#ifdef MANY
#include "many.h"
#endif

/* The lane's row of the matrix times the one row of x. */
DEVICE float output_of(const Matrix &m, int row, const Input &in) {
#ifdef MANY
    SHARED(Space<1>, space, 1);
    float own[GROUPS];
    multiply_many(m, row, in, *space, own);
    return own[0];
#else
    const int rows[1] = {row};
    float sums[1][1];
    multiply<1, 1>(m, rows, in, sums);
    return sums[0][0];
#endif
}

/* A row of x has one vector a slot, or one for all slots (parts = 1). */
KERNEL(linear_experts, THREADS)(Step step, View y, View x, View ids, Matrix weight, const float *bias, const u8 *codes,
                                const uint4 *factors, int rows, int parts, int part_step) {
    const int token = BLOCK_Y, slot = BLOCK_Z, row = BLOCK_X * BLOCK_ROWS + THREAD / CLASSES;
    if (is_unused(step, y, token)) return;
    const int last = weight.rows / rows - 1, id = (int)row_of(ids, token)[slot];
    const int expert = id < 0 ? 0 : id < last ? id : last, known = row < rows ? row : rows - 1;
    const Parts all = {x, codes, factors, parts, part_step};
    const float v = output_of(weight, expert * rows + known, input_of(all, weight.cols, slot % parts, token, 1));
    if (CLASS || row >= rows) return;
    row_of(y, token)[slot * rows + row] = bias ? v + bias[expert * rows + row] : v;
}

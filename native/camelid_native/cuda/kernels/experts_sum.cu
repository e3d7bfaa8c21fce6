/* experts_sum: y = the sum over slots of probs[slot] * (weight[ids[slot]] @ x[slot] + bias[ids[slot]]). */
#include "product.h"
#include "tile.h"
#include "weighted.h"

#define THREADS 256
enum { AT_ONCE = 8, ROWS_AT_ONCE = THREADS / CLASSES / AT_ONCE };  /* slots and rows of a block */

/* A block has a row of x and ROWS_AT_ONCE rows of its experts' matrices; a group of 32 lanes has a slot. */
KERNEL(linear_experts_sum, THREADS)(Step step, View y, View x, View ids, View probs, Matrix weight, const float *bias,
                                    const u8 *codes, const uint4 *factors, int rows, int slots, int parts,
                                    int part_step) {
    SHARED(float, values, AT_ONCE * ROWS_AT_ONCE);
    const int token = BLOCK_Y, place = THREAD / CLASSES, row = BLOCK_X * ROWS_AT_ONCE + place % ROWS_AT_ONCE;
    if (is_unused(step, y, token)) return;
    const Parts all = {x, codes, factors, parts, part_step};
    float sum = 0.0f;
    for (int first = 0; first < slots; first += AT_ONCE) {
        const int own = first + place / ROWS_AT_ONCE, slot = own < slots ? own : slots - 1;
        const int at = expert_of(ids, token, slot, weight.rows / rows) * rows + (row < rows ? row : rows - 1);
        const int found[1] = {at};
        float v[1][1];
        multiply<1, 1>(weight, found, input_of(all, weight.cols, slot % parts, token, 1), v);
        SYNC();  /* threads may still read the slots before */
        if (!CLASS) values[place] = bias ? v[0][0] + bias[at] : v[0][0];
        SYNC();
        const int n = slots - first < AT_ONCE ? slots - first : AT_ONCE;
        sum = weighted(values + place % ROWS_AT_ONCE, row_of(probs, token) + first, n, ROWS_AT_ONCE, sum);
    }
    if (THREAD % CLASSES == 0 && place < ROWS_AT_ONCE && row < rows) row_of(y, token)[row] = sum;
}

/* The sum of outputs [row, slot, cols] of linear_experts. */
KERNEL(sum_outputs, THREADS)(Step step, View y, View probs, const float *outputs_at, int cols, int slots) {
    const int c = BLOCK_X * THREADS + THREAD, row = BLOCK_Y;
    if (is_unused(step, y, row) || c >= cols) return;
    const float *x = outputs_at + (long long)row * slots * cols + c;
    row_of(y, row)[c] = weighted(x, row_of(probs, row), slots, cols);
}

/* experts: y[slot] = weight[ids[slot]] @ x[slot] + bias[ids[slot]]. A block has BLOCK_ROWS rows of an expert's
 * matrix, and a tile of sorted pairs or one pair. */
#define FEW_THREADS 128
#include "experts.h"

struct Experts {
    enum { R = 1 };
    Matrix weight;
    Pairs pairs;
    Input in;
    Norm norm;
    View y;
    const float *bias;
    int rows, slots;

    DEVICE int row() const { return BLOCK_Y * BLOCK_ROWS + THREAD / CLASSES; }
    DEVICE void find_rows(int (&own)[R]) const { own[0] = pairs.expert * rows + (row() < rows ? row() : rows - 1); }
    DEVICE void finish(const float (&own)[R], int first) const {
        if (first + CLASS >= in.n || row() >= rows) return;
        const float v = bias ? own[0] + bias[pairs.expert * rows + row()] : own[0];
        outputs_of(y, pairs[first + CLASS], slots, rows)[row()] = v;
    }
};

/* A row of x has one vector a slot, or one for all slots (parts = 1). With `outputs_at`, the outputs of all slots are
 * there, and not in y. */
KERNEL(linear_experts, THREADS)(Step step, View y, View x, View ids, Matrix weight, const float *bias, const u8 *codes,
                                const uint4 *factors, const u32 *order, const Tile *tiles, const float *sorted,
                                const u8 *sorted_codes, const uint4 *sorted_factors, float *outputs_at, int rows,
                                int slots, int parts, int part_step) {
    const Sorted all = {order, tiles, sorted, sorted_codes, sorted_factors};
    const Parts vectors = {x, codes, factors, parts, part_step};
    if (has_no_pair(step, ids, all, slots)) return;
    const Pairs pairs = pairs_of(ids, all, vectors, weight.cols, weight.rows / rows, slots);
    const View to = outputs_at ? View{outputs_at, slots * rows, y.rows_word} : y;
    const Experts task = {weight, pairs, pairs.in, {}, to, bias, rows, slots};
    outputs(task);
}

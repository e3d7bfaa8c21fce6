/* experts: y[slot] = weight[ids[slot]] @ x[slot] + bias[ids[slot]]. A block has 16 rows of an expert's matrix, and a
 * tile of sorted pairs or one pair. */
#define THREADS 128
#define BLOCK_ROWS (THREADS / 8)
#include "experts.h"
#include "outputs.h"

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
        const int pair = pairs[first + CLASS];
        const float v = bias ? own[0] + bias[pairs.expert * rows + row()] : own[0];
        row_of(y, pair / slots)[pair % slots * rows + row()] = v;
    }
};

/* A row of x has one vector a slot, or one for all slots (parts = 1). */
KERNEL(linear_experts, THREADS)(Step step, View y, View x, View ids, Matrix weight, const float *bias, const u8 *codes,
                                const uint4 *factors, const u32 *order, const Tile *tiles, const float *sorted,
                                const u8 *sorted_codes, const uint4 *sorted_factors, int rows, int slots, int parts,
                                int part_step) {
    const Sorted all = {order, tiles, sorted, sorted_codes, sorted_factors};
    const Parts vectors = {x, codes, factors, parts, part_step};
    const Pairs pairs = pairs_at(step, ids, all, vectors, weight.cols, weight.rows / rows, slots);
    if (!pairs.in.n) return;
    const Experts task = {weight, pairs, pairs.in, {}, y, bias, rows, slots};
    outputs(task);
}

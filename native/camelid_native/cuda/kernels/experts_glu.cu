/* experts_glu: y[slot] = act(gate) * up, where gate and up are products of x[slot] with two matrices of the slot's
 * expert. A block has BLOCK_ROWS rows of both, and a tile of sorted pairs or one pair. */
#define FEW_THREADS 256
#include "act.h"
#include "experts.h"
#include "rounding.h"

/* A product with one of the weights. The gate's outputs wait in y for those of up, by the same thread. */
struct Half {
    enum { R = 1 };
    Matrix weight;
    Pairs pairs;
    Input in;
    Norm norm;
    View y;
    const float *bias;
    Codes8 rounded;
    int rows, slots, act;
    bool is_up;

    DEVICE int first_row() const { return BLOCK_Y * BLOCK_ROWS; }
    DEVICE int row() const { return first_row() + THREAD / CLASSES; }
    DEVICE void find_rows(int (&own)[R]) const { own[0] = pairs.expert * rows + (row() < rows ? row() : rows - 1); }
    DEVICE void finish(const float (&own)[R], int first) const {
        if (first + CLASS < in.n && row() < rows) {
            float *to = outputs_of(y, pairs[first + CLASS], slots, rows) + row();
            const float v = bias ? own[0] + bias[pairs.expert * rows + row()] : own[0];
            *to = is_up ? gated(act, *to, v) : v;
        }
        if (is_up && rounded.words) round_pairs(first);
    }
    /* Rounds the block's columns of up to eight pairs from `first` on: eight lanes have 32 columns of a pair. */
    DEVICE void round_pairs(int first) const {
        SYNC();
        const int part = THREAD / 64, t = first + THREAD / 8 % 8, word = first_row() + 32 * part + 4 * (THREAD % 8);
        const bool is_inside = 32 * part < BLOCK_ROWS && t < in.n && word < rows;
        const int pair = pairs[is_inside ? t : first];
        put_rounded(outputs_of(y, pair, slots, rows) + word, is_inside, rounded, ((long long)pair * rows + word) / 4);
    }
};

/* A row of x has one vector a slot, or one for all slots (parts = 1). */
KERNEL(linear_experts_glu, THREADS)(Step step, View y, View x, View ids, Matrix weight, Matrix up_weight,
                                    const float *bias, const float *up_bias, const u8 *codes, const uint4 *factors,
                                    const u32 *order, const Tile *tiles, const float *sorted, const u8 *sorted_codes,
                                    const uint4 *sorted_factors, u32 *out_codes, uint4 *out_factors, int rows,
                                    int slots, int parts, int part_step, int act) {
    const Sorted all = {order, tiles, sorted, sorted_codes, sorted_factors};
    const Parts vectors = {x, codes, factors, parts, part_step};
    if (has_no_pair(step, ids, all, slots)) return;
    const Pairs pairs = pairs_of(ids, all, vectors, weight.cols, weight.rows / rows, slots);
    const Codes8 rounded = {out_codes, out_factors};
    const Half gate = {weight, pairs, pairs.in, {}, y, bias, {}, rows, slots, act, false};
    const Half up = {up_weight, pairs, pairs.in, {}, y, up_bias, rounded, rows, slots, act, true};
    outputs(gate);
    outputs(up);
}

/* experts: the pairs of a block of a product, and their input: with SORTED a tile of sorted pairs, else the pair
 * BLOCK_X. */
#pragma once
#include "outputs.h"
#include "tile.h"

#ifdef SORTED
enum { IS_SORTED = 1 };
#else
enum { IS_SORTED = 0 };
#endif

/* Pairs in the order of their experts (tiles.cu), and their vectors of x in that order. */
struct Sorted { const u32 *order; const Tile *tiles; const float *x; const u8 *codes; const uint4 *factors; };

/* The pairs of a block, all of one expert, and their input. */
struct Pairs {
    Input in;
    const u32 *order;
    int first, expert;
    DEVICE int operator[](int t) const { return IS_SORTED ? (int)order[first + t] : BLOCK_X; }
};

/* The outputs of a pair in y: `rows` for each slot. */
DEVICE float *outputs_of(View y, int pair, int slots, int rows) {
    return row_of(y, pair / slots) + pair % slots * rows;
}

/* True if the block is behind the last pairs. It then leaves before it has an input, whose addresses a second way to
 * it would make generic. */
DEVICE bool has_no_pair(Step step, View ids, const Sorted &sorted, int slots) {
    return IS_SORTED ? !sorted.tiles[BLOCK_X].count : is_unused(step, ids, BLOCK_X / slots);
}

DEVICE Pairs pairs_of(View ids, const Sorted &sorted, const Parts &x, int cols, int n_experts, int slots) {
    if (IS_SORTED) {
        const Tile tile = sorted.tiles[BLOCK_X];
        const long long first = tile.first;
        const Input in = {sorted.x + first * cols, sorted.codes + first * cols,
                          sorted.factors + first * (cols / BLOCK), cols, cols, tile.count};
        return {in, sorted.order, tile.first, tile.expert};
    }
    const int row = BLOCK_X / slots, slot = BLOCK_X % slots;
    return {input_of(x, cols, slot % x.n, row, 1), 0, 0, expert_of(ids, row, slot, n_experts)};
}

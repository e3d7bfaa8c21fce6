/* experts: the pairs of a block of a product, and their input. */
#pragma once
#include "product.h"
#include "tile.h"

/* Pairs in the order of their experts (tiles.cu), and their vectors of x in that order; none without tiles. */
struct Sorted { const u32 *order; const Tile *tiles; const float *x; const u8 *codes; const uint4 *factors; };

/* The pairs of a block, all of one expert, and their input; pair t is order[t], or `only` without an order. */
struct Pairs {
    Input in;
    const u32 *order;
    int only, expert;
    DEVICE int operator[](int t) const { return order ? (int)order[t] : only; }
};

/* The pairs at place BLOCK_X: a tile, or without tiles pair BLOCK_X; n is 0 behind the last ones. */
DEVICE Pairs pairs_at(Step step, View ids, const Sorted &sorted, const Parts &x, int cols, int n_experts, int slots) {
    const int at = BLOCK_X, row = at / slots, slot = at % slots;
    if (sorted.tiles) {
        const Tile tile = sorted.tiles[at];
        const long long first = tile.first;
        const Input in = {sorted.x + first * cols, sorted.codes + first * cols,
                          sorted.factors + first * (cols / BLOCK), cols, cols, tile.count};
        return {in, sorted.order + first, at, tile.expert};
    }
    if (is_unused(step, ids, row)) return {};
    return {input_of(x, cols, slot % x.n, row, 1), 0, at, expert_of(ids, row, slot, n_experts)};
}

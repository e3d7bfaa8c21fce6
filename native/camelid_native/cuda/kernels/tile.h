/* tile: pairs of a row and one of its slots, numbered row * slots + slot, and tiles of pairs of one expert. */
#pragma once
#include "step.h"

/* `count` pairs from place `first` of their order on. */
struct Tile { int expert, first, count, unused; };

DEVICE int expert_of(View ids, int row, int slot, int n_experts) {
    const int id = (int)row_of(ids, row)[slot];
    return id < 0 ? 0 : id < n_experts ? id : n_experts - 1;
}

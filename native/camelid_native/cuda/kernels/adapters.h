/* adapters: low-rank terms in the slots of adapters (plan/op_rows_adapters.py). A slot has, for a matrix or a stack of
 * them, `most` scales, the rank and three unused floats; A [experts, most, n_in]; B [experts, most, n_out]. */
#pragma once
#include "step.h"

enum { ADAPTER_WORD = 2, ADAPTER_HEADER = 4 };  /* the word of a sequence; floats from the scales to A */

/* One tensor of a layer of a group of slots: `width` floats a slot. */
struct Adapters { const float *at; int width, units; };

/* A matrix, or a stack of `experts`. */
struct Site { Adapters adapters; int most, n_in, n_out, experts; };

/* The term of one row and expert; a rank of 0 is none. */
struct Term { const float *scales, *a, *b; int rank; };

/* The slot of a row of y, which is of a token or of an output; 0 without an adapter. */
DEVICE u32 slot_of(Step step, View y, int row) {
    const u32 sequence = y.rows_word == OUTPUTS ? output_at(step, row)[1] : row_at(step, row).sequence;
    return sequence_at(step, sequence)[ADAPTER_WORD];
}

DEVICE Term term_of(const Site &site, u32 slot, int expert) {
    if (slot == 0 || slot >= (u32)site.adapters.units) return {};
    const float *scales = site.adapters.at + (long long)slot * site.adapters.width;
    const float *a = scales + site.most + ADAPTER_HEADER, *b = a + (long long)site.experts * site.most * site.n_in;
    const long long first = (long long)expert * site.most;
    const int rank = (int)scales[site.most];
    return {scales, a + first * site.n_in, b + first * site.n_out, rank < site.most ? rank : site.most};
}

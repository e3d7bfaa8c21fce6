/* slots: rows of a sequence, its slot of recurrent state, and rows of a state matrix in registers. */
#pragma once
#include "step.h"

#define GROUPS 8  /* of 32 lanes: rows of a state matrix in a block of 256 threads */

struct Span { int first, rows; };  /* a sequence's rows of the step */

DEVICE Span span_of(Step step, u32 sequence) {
    const u32 *w = sequence_at(step, sequence);
    return {(int)w[0], (int)w[1]};
}
DEVICE float *slot_at(Slots state, u32 slot) { return state.at + (long long)slot * state.width; }

/* One row of a head's state matrix, over the lanes of a group: lane l has columns l, l + 32, ... */
template <int PER_LANE> struct StatePart { float at[PER_LANE]; };

/* The first `used` columns of row `row`, of `width` columns, in the read slot; 0 for the others, and without held rows. */
template <int PER_LANE>
DEVICE void load_part(StatePart<PER_LANE> &part, Slots state, Group group, int row, int used, int width) {
    const float *from = slot_at(state, group.read) + (long long)row * width;
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        part.at[i] = group.held && c < used ? from[c] : 0.0f;
}

/* The first `used` columns to row `row` of the write slot. */
template <int PER_LANE>
DEVICE void store_part(const StatePart<PER_LANE> &part, Slots state, Group group, int row, int used, int width) {
    float *to = slot_at(state, group.write) + (long long)row * width;
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        if (c < used) to[c] = part.at[i];
}

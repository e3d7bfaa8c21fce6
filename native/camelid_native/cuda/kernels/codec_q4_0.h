/* codec q4_0: 16 bytes of nibbles | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 8, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 packed[4], scale; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.scale = short_at(field_of(m, 1, block, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    split_nibbles(w.packed, c.words);
    c.scales[0] = float_of_half(w.scale);
    return c;
}

/* codec q5_0: 16 bytes of nibbles | fifth bits | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 16, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 packed[4], high, scale; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.high = word_at(field_of(m, 1, block, 4), 0);
    w.scale = short_at(field_of(m, 2, block, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    split_nibbles(w.packed, c.words);
    add_fifths(w.high, c.words);
    c.scales[0] = float_of_half(w.scale);
    return c;
}

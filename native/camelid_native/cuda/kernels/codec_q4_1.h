/* codec q4_1: 16 bytes of nibbles | scale, minimum. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };
struct Stored { u32 packed[4], scales; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.scales = word_at(field_of(m, 1, block, 4), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    split_nibbles(w.packed, c.words);
    c.scales[0] = float_of_half(w.scales & 0xFFFFu);
    c.zeros[0] = float_of_half(w.scales >> 16);
    return c;
}

/* codec q2_0: 16 bytes of 2-bit codes | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 packed[2], scale; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    w.packed[0] = word_at(field_of(m, 0, block, 8), 0);
    w.packed[1] = word_at(field_of(m, 0, block, 8), 1);
    w.scale = short_at(field_of(m, 1, block / 2, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 8; i++) c.words[i] = spread_pairs(byte_of(w.packed[i / 4], i % 4));
    c.scales[0] = float_of_half(w.scale);
    return c;
}

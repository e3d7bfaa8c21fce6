/* codec q1_0: 16 bytes of bits | scale. A bit is 1 or -1. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 bits, scale; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    w.bits = word_at(field_of(m, 0, block, 4), 0);
    w.scale = short_at(field_of(m, 1, block / 4, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 8; i++) c.words[i] = spread_bits(w.bits >> 4 * i) << 1;
    c.scales[0] = float_of_half(w.scale);
    return c;
}

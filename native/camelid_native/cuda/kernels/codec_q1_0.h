/* codec q1_0: 16 bytes of bits | scale. A bit is 1 or -1. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const u32 bits = word_at(field_of(m, 0, block / 4, 16), (int)(block % 4));
    for (int i = 0; i < 8; i++) c.words[i] = spread_bits(bits >> 4 * i) << 1;
    c.scales[0] = half_at(field_of(m, 1, block / 4, 2), 0);
    return c;
}

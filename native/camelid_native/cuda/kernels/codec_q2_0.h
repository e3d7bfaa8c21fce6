/* codec q2_0: 16 bytes of 2-bit codes | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const u8 *p = field_of(m, 0, block / 2, 16) + 8 * (block % 2);
    for (int i = 0; i < 8; i++) c.words[i] = spread_pairs(p[i]);
    c.scales[0] = half_at(field_of(m, 1, block / 2, 2), 0);
    return c;
}

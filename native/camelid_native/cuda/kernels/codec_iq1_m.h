/* codec iq1_m: 32 indices, 32 nibbles of 3 upper bits of an index and the sign of delta | 4 words of four 3-bit scales. */
#pragma once
#include "grid_iq1.h"

enum { OFFSET = 9, SCALES = 2, HAS_ZEROS = 0 };

/* The factor: the upper nibbles of the words of scales. */
DEVICE float factor_of(const u8 *scales) {
    u32 bits = 0;
    for (int i = 0; i < 4; i++) bits |= (short_at(scales, i) >> 12) << 4 * i;
    return float_of_half(bits);
}

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 48), *scales = field_of(m, 1, block / 8, 8);
    for (int i = 0; i < 4; i++) {
        const u32 high = nibble_at(p + 32, 4 * s + i);
        shifted_point(m, p[4 * s + i] | (high & 7u) << 8, high >> 3, i, c.words);
    }
    const u32 pair = short_at(scales, s / 2) >> 6 * (s % 2);
    for (int h = 0; h < 2; h++) c.scales[h] = factor_of(scales) * (float)(2 * (pair >> 3 * h & 7u) + 1) * 0.125f;
    return c;
}

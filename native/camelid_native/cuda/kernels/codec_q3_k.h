/* codec q3_k: 32 bytes of third bits, 64 of 2-bit codes | 16 scales of 6 bits | factor. A byte has codes 32 columns apart. */
#pragma once
#include "bits.h"

enum { OFFSET = 4, SCALES = 2, HAS_ZEROS = 0 };

/* Scale i: a nibble of the first eight bytes, and two bits of the last four. */
DEVICE int scale_at(const u8 *p, int i) { return (p[i % 8] >> i / 8 * 4 & 15) | (p[8 + i % 4] >> i / 4 * 2 & 3) << 4; }

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 96), *scales = field_of(m, 1, block / 8, 12);
    shifted_fields(p + 32 + 32 * (s / 4), 2 * (s % 4), 0x03030303u, c.words);
    add_bits(p, s, 2, c.words);
    const float d = half_at(field_of(m, 2, block / 8, 2), 0);
    for (int h = 0; h < 2; h++) c.scales[h] = d * (float)(scale_at(scales, 2 * s + h) - 32);
    return c;
}

/* codec q2_k: 16 nibbles of scales and minimums, 64 bytes of 2-bit codes | two factors. A byte has codes 32 columns apart. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 1 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 80), *factors = field_of(m, 1, block / 8, 4);
    shifted_fields(p + 16 + 32 * (s / 4), 2 * (s % 4), 0x03030303u, c.words);
    for (int h = 0; h < 2; h++) {
        const int both = p[2 * s + h];
        c.scales[h] = half_at(factors, 0) * (float)(both & 15);
        c.zeros[h] = -(half_at(factors, 1) * (float)(both >> 4));
    }
    return c;
}

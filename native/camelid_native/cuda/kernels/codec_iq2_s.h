/* codec iq2_s: 32 indices, 32 bytes of signs, 32 upper pairs of bits of the indices, 16 nibbles of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 80);
    for (int i = 0; i < 4; i++) {
        const u32 entry = p[4 * s + i] | (p[64 + s] >> 2 * i & 3u) << 8;
        signed_point(m, entry, p[32 + 4 * s + i], i, c.words);
    }
    const float d = half_at(field_of(m, 1, block / 8, 2), 0);
    for (int h = 0; h < 2; h++) c.scales[h] = d * ((float)(p[72 + s] >> 4 * h & 15) + 0.5f) * 0.25f;
    return c;
}

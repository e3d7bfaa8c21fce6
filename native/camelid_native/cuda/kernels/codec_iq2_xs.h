/* codec iq2_xs: 9 bits of index and 7 signs a point | 16 nibbles of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 64) + 8 * s;
    for (int i = 0; i < 4; i++) signed_point(m, short_at(p, i) & 511u, even_signs(short_at(p, i) >> 9), i, c.words);
    const u32 scales = field_of(m, 1, block / 8, 8)[s];
    const float d = half_at(field_of(m, 2, block / 8, 2), 0);
    for (int h = 0; h < 2; h++) c.scales[h] = d * ((float)(scales >> 4 * h & 15u) + 0.5f) * 0.25f;
    return c;
}

/* codec iq1_s: 32 indices, 8 words of four times 3 upper bits of an index, 3 bits of scale, sign of delta | factor. */
#pragma once
#include "grid_iq1.h"

enum { OFFSET = 9, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 48);
    const u32 high = short_at(p, 16 + s);
    for (int i = 0; i < 4; i++) shifted_point(m, p[4 * s + i] | (high >> 3 * i & 7u) << 8, high >> 15, i, c.words);
    c.scales[0] = half_at(field_of(m, 1, block / 8, 2), 0) * (float)(2 * (high >> 12 & 7u) + 1) * 0.125f;
    return c;
}

/* codec iq3_xxs: 64 indices, 8 words of four times 7 signs and 4 bits of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 96), *points = p + 8 * s;
    const u32 signs = word_at(p, 16 + s);
    for (int i = 0; i < 4; i++)
        signed_pair(m, points[2 * i], points[2 * i + 1], even_signs(signs >> 7 * i & 127u), i, c.words);
    c.scales[0] = half_at(field_of(m, 1, block / 8, 2), 0) * ((float)(signs >> 28) + 0.5f) * 0.5f;
    return c;
}

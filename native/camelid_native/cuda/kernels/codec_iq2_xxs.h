/* codec iq2_xxs: 8 groups of four indices, four times 7 signs, 4 bits of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const u8 *p = field_of(m, 0, block / 8, 64) + 8 * (block % 8);
    const u32 signs = word_at(p, 1);
    for (int i = 0; i < 4; i++) signed_point(m, p[i], even_signs(signs >> 7 * i & 127u), i, c.words);
    c.scales[0] = half_at(field_of(m, 1, block / 8, 2), 0) * ((float)(signs >> 28) + 0.5f) * 0.25f;
    return c;
}

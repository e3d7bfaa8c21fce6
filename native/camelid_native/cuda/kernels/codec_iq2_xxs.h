/* codec iq2_xxs: 8 groups of four indices, four times 7 signs, 4 bits of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 points, signs, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const u8 *p = field_of(m, 0, block, 8);
    w.points = word_at(p, 0);
    w.signs = word_at(p, 1);
    w.factor = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++) put_point(m, byte_of(w.points, i), even_signs(w.signs >> 7 * i & 127u), i, c);
    c.scales[0] = odd_scale(w.factor, w.signs >> 28, 0.25f);
    return c;
}

/* codec iq3_xxs: 64 indices, 8 words of four times 7 signs and 4 bits of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 points[2], signs, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 96);
    w.points[0] = word_at(p, 2 * s);
    w.points[1] = word_at(p, 2 * s + 1);
    w.signs = word_at(p, 16 + s);
    w.factor = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++) {
        const u32 both = w.points[i / 2] >> 16 * (i % 2);
        put_pair(m, byte_of(both, 0), byte_of(both, 1), even_signs(w.signs >> 7 * i & 127u), i, c);
    }
    c.scales[0] = odd_scale(w.factor, w.signs >> 28, 0.5f);
    return c;
}

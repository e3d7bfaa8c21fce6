/* codec iq2_xs: 9 bits of index and 7 signs a point | 16 nibbles of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 points[2], scales, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block, 8);
    w.points[0] = word_at(p, 0);
    w.points[1] = word_at(p, 1);
    w.scales = field_of(m, 1, block / 8, 8)[s];
    w.factor = short_at(field_of(m, 2, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++) {
        const u32 point = w.points[i / 2] >> 16 * (i % 2) & 0xFFFFu;
        put_point(m, point & 511u, even_signs(point >> 9), i, c);
    }
    for (int h = 0; h < 2; h++) c.scales[h] = odd_scale(w.factor, nibble_of(w.scales, h), 0.25f);
    return c;
}

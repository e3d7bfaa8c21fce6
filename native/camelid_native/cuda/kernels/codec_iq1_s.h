/* codec iq1_s: 32 indices, 8 words of four times 3 upper bits of an index, 3 bits of scale, sign of delta | factor. */
#pragma once
#include "grid_iq1.h"

enum { OFFSET = 9, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 points, high, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 48);
    w.points = word_at(p, s);
    w.high = short_at(p, 16 + s);
    w.factor = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++)
        put_point(m, byte_of(w.points, i) | (w.high >> 3 * i & 7u) << 8, w.high >> 15, i, c);
    c.scales[0] = odd_scale(float_of_half(w.factor), w.high >> 12);
    return c;
}

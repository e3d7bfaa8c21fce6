/* codec iq2_s: 32 indices, 32 bytes of signs, 32 upper pairs of bits of the indices, 16 nibbles of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 points, signs, high, scales, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 80);
    w.points = word_at(p, s);
    w.signs = word_at(p, 8 + s);
    w.high = p[64 + s];
    w.scales = p[72 + s];
    w.factor = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++) {
        const u32 entry = byte_of(w.points, i) | (w.high >> 2 * i & 3u) << 8;
        put_point(m, entry, byte_of(w.signs, i), i, c);
    }
    for (int h = 0; h < 2; h++) c.scales[h] = odd_scale(w.factor, nibble_of(w.scales, h), 0.25f);
    return c;
}

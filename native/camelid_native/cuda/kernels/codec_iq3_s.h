/* codec iq3_s: 64 indices, their 64 ninth bits, 32 bytes of signs, 8 nibbles of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 points[2], high, signs, scales, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 108);
    w.points[0] = word_at(p, 2 * s);
    w.points[1] = word_at(p, 2 * s + 1);
    w.high = p[64 + s];
    w.signs = word_at(p, 18 + s);
    w.scales = word_at(p, 26);
    w.factor = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++) {
        const u32 both = w.points[i / 2] >> 16 * (i % 2), high = w.high >> 2 * i;
        const u32 first = byte_of(both, 0) | (high & 1u) << 8, second = byte_of(both, 1) | (high & 2u) << 7;
        put_pair(m, first, second, byte_of(w.signs, i), i, c);
    }
    c.scales[0] = float_of_half(w.factor) * (float)(1 + 2 * nibble_of(w.scales, s));
    return c;
}

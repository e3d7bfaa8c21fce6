/* codec iq1_m: 32 indices, 32 nibbles of 3 upper bits of an index and the sign of delta | 4 words of four 3-bit scales
 * and 4 bits of the factor. */
#pragma once
#include "grid_iq1.h"

enum { OFFSET = 9, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 points, high, scales[2]; };

DEVICE float factor_of(const u32 *words) {
    const u32 low = (words[0] >> 12 & 15u) | words[0] >> 28 << 4;
    return float_of_half(low | (words[1] >> 12 & 15u) << 8 | words[1] >> 28 << 12);
}

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 48), *scales = field_of(m, 1, block / 8, 8);
    w.points = word_at(p, s);
    w.high = short_at(p, 16 + s);
    w.scales[0] = word_at(scales, 0);
    w.scales[1] = word_at(scales, 1);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 4; i++) {
        const u32 high = nibble_of(w.high, i);
        put_point(m, byte_of(w.points, i) | (high & 7u) << 8, high >> 3, i, c);
    }
    const float d = factor_of(w.scales);
    const u32 pair = (s < 4 ? w.scales[0] : w.scales[1]) >> s % 4 / 2 * 16 >> 6 * (s % 2);
    for (int h = 0; h < 2; h++) c.scales[h] = odd_scale(d, pair >> 3 * h);
    return c;
}

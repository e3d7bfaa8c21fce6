/* codec q6_k, by repack_q6_k.h: 16 bytes of nibbles | 64 of upper pairs of bits, 16 scales | factor of eight groups. */
#pragma once
#include "bits.h"

enum { OFFSET = 32, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 packed[4]; uint2 high; u32 scales, factor; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 1, block / 8, 80);
    load_words(field_of(m, 0, block, 16), w.packed);
    w.high = load8(p + 8 * s);
    w.scales = short_at(p + 64, s);
    w.factor = short_at(field_of(m, 2, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    split_nibbles(w.packed, c.words);
    for (int i = 0; i < 8; i++) {
        const u32 high = i < 4 ? w.high.x : w.high.y;
        c.words[i] |= (i % 4 < 3 ? high << (4 - i % 4 * 2) : high >> 2) & 0x30303030u;
    }
    const float d = float_of_half(w.factor);
    for (int h = 0; h < 2; h++) c.scales[h] = d * (float)(i8)byte_of(w.scales, h);
    return c;
}

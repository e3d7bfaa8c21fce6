/* codec q3_k: 32 bytes of third bits, 64 of 2-bit codes | 16 scales of 6 bits | factor. A byte has codes
 * 32 columns apart. */
#pragma once
#include "bits.h"

enum { OFFSET = 4, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 packed[8], high[8], scales[3], factor; };

/* Scale i: a nibble of the first eight bytes, and two bits of the last four. */
DEVICE u32 scale_of(const u32 *words, int i) {
    const u32 low = i % 8 < 4 ? words[0] : words[1];
    return (byte_of(low, i % 4) >> i / 8 * 4 & 15u) | (byte_of(words[2], i % 4) >> i / 4 * 2 & 3u) << 4;
}

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 96), *scales = field_of(m, 1, block / 8, 12);
    load_32(p + 32 + 32 * (s / 4), w.packed);
    load_32(p, w.high);
    for (int i = 0; i < 3; i++) w.scales[i] = word_at(scales, i);
    w.factor = short_at(field_of(m, 2, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    take_fields(w.packed, 2 * (s % 4), 0x03030303u, c.words);
    add_fields(w.high, s, 0x01010101u, 2, c.words);
    const float d = float_of_half(w.factor);
    for (int h = 0; h < 2; h++) c.scales[h] = d * (float)((int)scale_of(w.scales, 2 * s + h) - 32);
    return c;
}

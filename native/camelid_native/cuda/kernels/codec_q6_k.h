/* codec q6_k: 128 bytes of nibbles 64 columns apart, 64 of upper pairs of bits 32 columns apart, 16 scales | factor. */
#pragma once
#include "bits.h"

enum { OFFSET = 32, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 packed[8], high[8], scales, factor; };

DEVICE Stored load_block(const Matrix &m, long long block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 208);
    load_32(p + 64 * (s / 4) + 32 * (s % 2), w.packed);
    load_32(p + 128 + 32 * (s / 4), w.high);
    w.scales = short_at(p + 192, s);
    w.factor = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    take_fields(w.packed, s % 4 / 2 * 4, 0x0F0F0F0Fu, c.words);
    add_fields(w.high, 2 * (s % 4), 0x03030303u, 4, c.words);
    const float d = float_of_half(w.factor);
    for (int h = 0; h < 2; h++) c.scales[h] = d * (float)(i8)byte_of(w.scales, h);
    return c;
}

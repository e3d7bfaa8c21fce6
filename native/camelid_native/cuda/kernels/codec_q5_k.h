/* codec q5_k: factors and scales, 32 bytes of fifth bits, 128 of nibbles. A byte has codes 32 columns apart. */
#pragma once
#include "scales_k.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };
struct Stored { u32 packed[8], high[8], scales[4]; };

DEVICE Stored load_block(const Matrix &m, long long block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 176);
    load_32(p + 48 + 32 * (s / 2), w.packed);
    load_32(p + 16, w.high);
    load_words(p, w.scales);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    take_fields(w.packed, 4 * (s % 2), 0x0F0F0F0Fu, c.words);
    add_fields(w.high, s, 0x01010101u, 4, c.words);
    read_scales(w.scales, s, c);
    return c;
}

/* codec q4_k: factors and scales, 128 bytes of nibbles. A byte has codes 32 columns apart. */
#pragma once
#include "scales_k.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };
struct Stored { u32 packed[8], scales[4]; };

DEVICE Stored load_block(const Matrix &m, long long block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 144);
    load_32(p + 16 + 32 * (s / 2), w.packed);
    load_words(p, w.scales);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    take_fields(w.packed, 4 * (s % 2), 0x0F0F0F0Fu, c.words);
    read_scales(w.scales, s, c);
    return c;
}

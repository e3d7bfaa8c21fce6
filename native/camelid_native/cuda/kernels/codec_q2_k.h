/* codec q2_k: 16 nibbles of scales and of minimums, 64 bytes of 2-bit codes | two factors. A byte has codes
 * 32 columns apart. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 1 };
struct Stored { u32 packed[8], scales, factors; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 80);
    load_32(p + 16 + 32 * (s / 4), w.packed);
    w.scales = short_at(p, s);
    w.factors = word_at(field_of(m, 1, block / 8, 4), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    take_fields(w.packed, 2 * (s % 4), 0x03030303u, c.words);
    for (int h = 0; h < 2; h++) {
        c.scales[h] = float_of_half(w.factors & 0xFFFFu) * (float)nibble_of(w.scales, 2 * h);
        c.zeros[h] = -(float_of_half(w.factors >> 16) * (float)nibble_of(w.scales, 2 * h + 1));
    }
    return c;
}

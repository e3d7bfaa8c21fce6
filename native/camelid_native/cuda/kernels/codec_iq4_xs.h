/* codec iq4_xs: 128 bytes of nibbles | factor, 8 upper pairs of bits of the scales, 8 nibbles of scale. */
#pragma once
#include "tables.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 packed[4], factor, scales; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.factor = word_at(field_of(m, 1, block / 8, 8), 0);
    w.scales = word_at(field_of(m, 1, block / 8, 8), 1);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    const u32 table[4] = IQ4, scale = nibble_of(w.scales, s) | (w.factor >> 16 >> 2 * s & 3u) << 4;
    look_up_words<4>(table, w.packed, c.words);
    c.scales[0] = float_of_half(w.factor & 0xFFFFu) * (float)((int)scale - 32);
    return c;
}

/* codec q5_k, by repack_q5_k.h: 16 bytes of nibbles | fifth bits, scales and minimums | factors of eight groups. */
#pragma once
#include "scales_k.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };
struct Stored { u32 packed[4], high, scales, factors; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    load_words(field_of(m, 0, block, 16), w.packed);
    w.high = word_at(field_of(m, 1, block / 8, 48), s);
    w.scales = short_at(field_of(m, 1, block / 8, 48) + 32, s);
    w.factors = word_at(field_of(m, 2, block / 8, 4), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    split_nibbles(w.packed, c.words);
    for (int i = 0; i < 8; i++) c.words[i] |= (i < 4 ? w.high << (4 - i) : w.high >> (i - 4)) & 0x10101010u;
    read_scales(w.factors, w.scales, c);
    return c;
}

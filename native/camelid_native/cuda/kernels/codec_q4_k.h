/* codec q4_k, by repack_q4_k.h: 16 bytes of nibbles | scale and minimum | factors of eight groups. */
#pragma once
#include "scales_k.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };
struct Stored { u32 packed[4], scales, factors; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.scales = short_at(field_of(m, 1, block, 2), 0);
    w.factors = word_at(field_of(m, 2, block / 8, 4), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    split_nibbles(w.packed, c.words);
    read_scales(w.factors, w.scales, c);
    return c;
}

/* codec q5_1: 16 bytes of nibbles | scale, minimum, fifth bits. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    u32 packed[4];
    const u8 *rest = field_of(m, 1, block, 8);
    load_words(field_of(m, 0, block, 16), packed);
    split_nibbles(packed, c.words);
    add_fifths(word_at(rest, 1), c.words);
    c.scales[0] = half_at(rest, 0);
    c.zeros[0] = half_at(rest, 1);
    return c;
}

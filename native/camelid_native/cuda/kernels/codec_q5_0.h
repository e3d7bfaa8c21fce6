/* codec q5_0: 16 bytes of nibbles | fifth bits | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 16, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    u32 packed[4];
    load_words(field_of(m, 0, block, 16), packed);
    split_nibbles(packed, c.words);
    add_fifths(word_at(field_of(m, 1, block, 4), 0), c.words);
    c.scales[0] = half_at(field_of(m, 2, block, 2), 0);
    return c;
}

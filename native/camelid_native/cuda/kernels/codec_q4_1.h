/* codec q4_1: 16 bytes of nibbles | scale, minimum. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    u32 packed[4];
    load_words(field_of(m, 0, block, 16), packed);
    split_nibbles(packed, c.words);
    c.scales[0] = half_at(field_of(m, 1, block, 4), 0);
    c.zeros[0] = half_at(field_of(m, 1, block, 4), 1);
    return c;
}

/* codec iq4_nl: 16 bytes of nibbles | scale. */
#pragma once
#include "tables.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    u32 packed[4];
    const u32 table[4] = IQ4;
    load_words(field_of(m, 0, block, 16), packed);
    look_up_words<4>(table, packed, c.words);
    c.scales[0] = half_at(field_of(m, 1, block, 2), 0);
    return c;
}

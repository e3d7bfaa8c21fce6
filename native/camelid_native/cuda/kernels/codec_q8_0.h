/* codec q8_0: codes | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    load_words(field_of(m, 0, block, 32), c.words);
    load_words(field_of(m, 0, block, 32) + 16, c.words + 4);
    c.scales[0] = half_at(field_of(m, 1, block, 2), 0);
    return c;
}

/* codec tq2_0: 64 bytes of 2-bit codes | factor. A byte has codes 32 columns apart. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    shifted_fields(field_of(m, 0, block / 8, 64) + 32 * (s / 4), 2 * (s % 4), 0x03030303u, c.words);
    c.scales[0] = half_at(field_of(m, 1, block / 8, 2), 0);
    return c;
}

/* codec q4_k: factors and scales, 128 bytes of nibbles. A byte has codes 32 columns apart. */
#pragma once
#include "scales_k.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 144);
    shifted_fields(p + 16 + 32 * (s / 2), 4 * (s % 2), 0x0F0F0F0Fu, c.words);
    read_scales(p, s, c);
    return c;
}

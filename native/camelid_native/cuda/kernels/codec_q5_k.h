/* codec q5_k: factors and scales, 32 bytes of fifth bits, 128 of nibbles. A byte has codes 32 columns apart. */
#pragma once
#include "scales_k.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 176);
    shifted_fields(p + 48 + 32 * (s / 2), 4 * (s % 2), 0x0F0F0F0Fu, c.words);
    add_bits(p + 16, s, 4, c.words);
    read_scales(p, s, c);
    return c;
}

/* codec q6_k: 128 bytes of nibbles 64 columns apart, 64 of upper pairs of bits 32 columns apart, 16 scales | factor. */
#pragma once
#include "bits.h"

enum { OFFSET = 32, SCALES = 2, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    u32 upper[8];
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 208);
    shifted_fields(p + 64 * (s / 4) + 32 * (s % 2), s % 4 / 2 * 4, 0x0F0F0F0Fu, c.words);
    shifted_fields(p + 128 + 32 * (s / 4), 2 * (s % 4), 0x03030303u, upper);
    for (int i = 0; i < 8; i++) c.words[i] |= upper[i] << 4;
    const float d = half_at(field_of(m, 1, block / 8, 2), 0);
    for (int h = 0; h < 2; h++) c.scales[h] = d * (float)(i8)p[192 + 2 * s + h];
    return c;
}

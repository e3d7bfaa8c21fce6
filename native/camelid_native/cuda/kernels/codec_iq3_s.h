/* codec iq3_s: 64 indices, their 64 ninth bits, 32 bytes of signs, 8 nibbles of scale | factor. */
#pragma once
#include "grids.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };

DEVICE u32 entry_at(const u8 *p, int s, int i) { return p[8 * s + i] | (p[64 + s] >> i & 1u) << 8; }

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 108);
    for (int i = 0; i < 4; i++)
        signed_pair(m, entry_at(p, s, 2 * i), entry_at(p, s, 2 * i + 1), p[72 + 4 * s + i], i, c.words);
    c.scales[0] = half_at(field_of(m, 1, block / 8, 2), 0) * (float)(1 + 2 * nibble_at(p + 104, s));
    return c;
}

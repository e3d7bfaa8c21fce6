/* codec iq4_xs: 128 bytes of nibbles | factor, 8 upper pairs of bits of the scales, 8 nibbles of scale. */
#pragma once
#include "tables.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };

DEVICE Codes codes_at(const Matrix &m, long long block) {
    Codes c;
    u32 packed[4];
    const u32 table[4] = IQ4;
    const int s = (int)(block % 8);
    const u8 *scales = field_of(m, 1, block / 8, 8);
    load_words(field_of(m, 0, block / 8, 128) + 16 * s, packed);
    look_up_words<4>(table, packed, c.words);
    const u32 scale = nibble_at(scales + 4, s) | (short_at(scales, 1) >> 2 * s & 3u) << 4;
    c.scales[0] = half_at(scales, 0) * (float)((int)scale - 32);
    return c;
}

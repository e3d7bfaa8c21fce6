/* q6_k: nibbles 64 columns apart, upper pairs of bits 32 columns apart, 16 scales, factor. Planes: nibbles of each
 * group; pairs of the groups, then their scales; the factor. */
#pragma once
#include "repack.h"

#define REPACKED_BYTES 210

DEVICE void put_group(const u8 *from, int block, int s, const Planes &to) {
    const u8 *high = from + 128 + s / 4 * 32;
    u8 *pairs = to.at[1] + block * 80 + 8 * s;
    put_nibbles(from + s / 4 * 64 + s % 2 * 32, s % 4 / 2 * 4, to.at[0] + block * 128 + 16 * s);
    for (int j = 0; j < 8; j++) {
        pairs[j] = 0;
        for (int i = 0; i < 4; i++) pairs[j] |= (u8)((high[j / 4 * 16 + 4 * i + j % 4] >> s % 4 * 2 & 3) << 2 * i);
    }
    for (int h = 0; h < 2; h++) to.at[1][block * 80 + 64 + 2 * s + h] = from[192 + 2 * s + h];
    if (s < 2) to.at[2][block * 2 + s] = from[208 + s];
}

/* q5_k: two factors, eight scales and minimums, 32 bytes of fifth bits, nibbles 32 columns apart. Planes: nibbles of
 * each group; fifth bits of the groups, then their scales and minimums; the factors. */
#pragma once
#include "repack.h"

#define REPACKED_BYTES 176

DEVICE void put_group(const u8 *from, int block, int s, const Planes &to) {
    u8 *fifths = to.at[1] + block * 48 + 4 * s;
    put_nibbles(from + 48 + s / 2 * 32, s % 2 * 4, to.at[0] + block * 128 + 16 * s);
    put_scales(from + 4, s, to.at[1] + block * 48 + 32 + 2 * s);
    for (int j = 0; j < 4; j++) {
        fifths[j] = 0;
        for (int i = 0; i < 8; i++) fifths[j] |= (u8)((from[16 + 4 * i + j] >> s & 1) << i);
    }
    if (s < 4) to.at[2][block * 4 + s] = from[s];
}

/* q4_k: two factors, eight scales and minimums, nibbles 32 columns apart. Planes: nibbles of each group; its scale and
 * minimum; the factors. */
#pragma once
#include "repack.h"

#define REPACKED_BYTES 144

DEVICE void put_group(const u8 *from, int block, int s, const Planes &to) {
    put_nibbles(from + 16 + s / 2 * 32, s % 2 * 4, to.at[0] + block * 128 + 16 * s);
    put_scales(from + 4, s, to.at[1] + block * 16 + 2 * s);
    if (s < 4) to.at[2][block * 4 + s] = from[s];
}

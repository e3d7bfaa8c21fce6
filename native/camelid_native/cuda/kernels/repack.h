/* repack: fields of a block of 256 columns as planes whose loads are as wide as a group of 32 columns. */
#pragma once
#include "gpu.h"

struct Planes { u8 *at[3]; };

/* 16 bytes of nibbles, code i beside code 16 + i, from a field of 32 bytes. */
DEVICE void put_nibbles(const u8 *from, int shift, u8 *to) {
    for (int i = 0; i < 16; i++) to[i] = (u8)((from[i] >> shift & 15) | (from[16 + i] >> shift & 15) << 4);
}

/* Scale and minimum of group s of q4_k and q5_k, 6 bits each: the first four in bytes of their own, the last four with
 * their low bits in the nibbles behind, and their high bits on top of the first four. */
DEVICE void put_scales(const u8 *from, int s, u8 *to) {
    to[0] = s < 4 ? from[s] & 63 : (u8)((from[s + 4] & 15) | from[s - 4] >> 6 << 4);
    to[1] = s < 4 ? from[s + 4] & 63 : (u8)(from[s + 4] >> 4 | from[s] >> 6 << 4);
}

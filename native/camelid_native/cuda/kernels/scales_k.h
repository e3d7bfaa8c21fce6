/* scales_k: two factors, eight scales and eight minimums in the first 16 bytes of a block of q4_k and q5_k. */
#pragma once
#include "bits.h"

/* The first four scales (minimums) are the low six bits of bytes 0-3 (4-7); the last four have their low bits in the
 * low (high) nibbles of bytes 8-11, their high bits on top of bytes 0-3 (4-7). */
DEVICE u32 scale_of(u32 bytes, u32 nibbles, int s) {
    const int at = 8 * (s % 4);
    return s < 4 ? bytes >> at & 63u : (nibbles >> at & 15u) | (bytes >> at >> 6 & 3u) << 4;
}

/* Scale and zero of group s. */
DEVICE void read_scales(const u32 *words, int s, Codes &c) {
    c.scales[0] = float_of_half(words[0] & 0xFFFFu) * (float)scale_of(words[1], words[3], s);
    c.zeros[0] = -(float_of_half(words[0] >> 16) * (float)scale_of(words[2], words[3] >> 4, s));
}

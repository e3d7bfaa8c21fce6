/* kv_q4_0: blocks of a half d and 16 bytes with values 0 - 15 in the low and 16 - 31 in the high nibbles; a value is
 * (q - 8) * d. */
#pragma once
#include "kv.h"

struct NibbleRows {
    enum { BLOCK_BYTES = 18, HALF = KV_BLOCK / 2 };
    static DEVICE long long bytes(int cols) { return (long long)(cols / KV_BLOCK) * BLOCK_BYTES; }
    template <int N> static DEVICE void load(const u8 *row, int c, float *v) {
        const u8 *block = row + c / KV_BLOCK * BLOCK_BYTES, *q = block + 2 + c % HALF;
        const float d = float_of_half(word2(block));
        const int shift = c % KV_BLOCK < HALF ? 0 : 4;
        for (int i = 0; i < N; i += 2) {
            const u32 two = word2(q + i) >> shift;
            v[i] = (float)((int)(two & 15) - 8) * d;
            v[i + 1] = (float)((int)(two >> 8 & 15) - 8) * d;
        }
    }
    /* d is the first value of largest magnitude / -8, and a quant x / d + 8, with d before its rounding to a half. */
    static DEVICE void store(u8 *row, int c, float v, bool is_inside) {
        const u32 top = group_max(magnitude(v));
        const u32 behind = group_max(magnitude(v) == top ? GROUP_LANES - LANE : 0);
        const float d = shuffle(v, GROUP_LANES - (int)behind) / -8.0f;
        const int q = (int)max_(min_(v * inverse_of(d) + 8.5f, 15.0f), 0.0f);
        const int both = q | shuffle(q, LANE + HALF) << 4, next = shuffle_xor(both, 1);
        u8 *block = row + c / KV_BLOCK * BLOCK_BYTES;
        if (is_inside && LANE < HALF && LANE % 2 == 0) put2(block + 2 + LANE, both | next << 8);
        if (is_inside && LANE == 0) put2(block, half_of_float(d));
    }
};
typedef NibbleRows KvRows;

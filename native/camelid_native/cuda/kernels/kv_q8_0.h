/* kv_q8_0: blocks of a half d and 32 signed bytes q; a value is q * d. */
#pragma once
#include "kv.h"

struct ByteRows {
    enum { BLOCK_BYTES = 34 };
    static DEVICE long long bytes(int cols) { return (long long)(cols / KV_BLOCK) * BLOCK_BYTES; }
    template <int N> static DEVICE void load(const u8 *row, int c, float *v) {
        const u8 *block = row + c / KV_BLOCK * BLOCK_BYTES, *q = block + 2 + c % KV_BLOCK;
        const float d = float_of_half(word2(block));
        for (int i = 0; i < N; i += 2) {
            const u32 two = word2(q + i);
            v[i] = (float)(i8)two * d;
            v[i + 1] = (float)(i8)(two >> 8) * d;
        }
    }
    /* d is max |x| / 127, and a quant x / d rounded half away from zero, with d before its rounding to a half. */
    static DEVICE void store(u8 *row, int c, float v, bool is_inside) {
        const float d = as_float(group_max(magnitude(v))) / 127.0f;
        const float size = min_(abs_(v * inverse_of(d)), 127.0f);
        const int whole = (int)size, rounded = whole + (int)(2.0f * (size - (float)whole));
        const int q = v < 0.0f ? -rounded : rounded, next = shuffle_xor(q, 1);
        u8 *block = row + c / KV_BLOCK * BLOCK_BYTES;
        if (is_inside && LANE % 2 == 0) put2(block + 2 + LANE, (q & 0xFF) | next << 8);
        if (is_inside && LANE == 0) put2(block, half_of_float(d));
    }
};
typedef ByteRows KvRows;

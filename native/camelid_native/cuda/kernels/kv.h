/* kv: rows of the KV cache in GGUF's bytes, by type. A type is a struct with
 *
 *   bytes(cols)           bytes of a row
 *   load<N>(row, c, v)    values c .. c + N of a row, N 2, 4 or 8; c is a multiple of N. With N > 2, rows of
 *                         float types begin at multiples of 16 bytes
 *   store(row, c, v, is_inside)   stores value c of a row if is_inside. Lane l of a group of 32 has the column c of
 *                         which c % 32 is l, and all threads call it
 *
 * and kv_TYPE.h names the type of a state `KvRows`. Blocks begin at even addresses, so they are read and written by
 * twos of bytes. */
#pragma once
#include "gpu.h"

enum { KV_BLOCK = 32 };  /* values of a block, as many as a group has lanes */

DEVICE u32 word2(const u8 *at) { return *(const u16 *)at; }
DEVICE void put2(u8 *at, u32 bits) { *(u16 *)at = (u16)bits; }

DEVICE void halves_of(u32 word, float *v) {
    v[0] = float_of_half(word & 0xFFFFu);
    v[1] = float_of_half(word >> 16);
}

/* The largest bits of a group's lanes; bits of magnitudes sort like the magnitudes, with NaN above all. */
DEVICE u32 group_max(u32 bits) {
    for (int mask = GROUP_LANES / 2; mask; mask /= 2) {
        const u32 other = (u32)shuffle_xor((int)bits, mask);
        bits = other > bits ? other : bits;
    }
    return bits;
}

DEVICE u32 magnitude(float v) { return as_bits(v) & 0x7FFFFFFFu; }
DEVICE float inverse_of(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

struct HalfRows {
    static DEVICE long long bytes(int cols) { return 2ll * cols; }
    template <int N> static DEVICE void load(const u8 *row, int c, float *v) {
        const u8 *at = row + 2 * c;
        if (N == 2) return halves_of(*(const u32 *)at, v);
        if (N == 4) {
            const uint2 words = *(const uint2 *)at;
            halves_of(words.x, v), halves_of(words.y, v + 2);
        } else {
            const uint4 words = load16(at);
            halves_of(words.x, v), halves_of(words.y, v + 2), halves_of(words.z, v + 4), halves_of(words.w, v + 6);
        }
    }
    static DEVICE void store(u8 *row, int c, float v, bool is_inside) {
        if (is_inside) put2(row + 2 * c, half_of_float(v));
    }
};

/* Helpers of the codecs: float16, packed integers, scaled integers. Counts are multiples of 16. */
#pragma once
#include "simd.h"

/* Unaligned words of a row. */
typedef uint16_t cam_u16 __attribute__((aligned(1), may_alias));
typedef uint64_t cam_u64 __attribute__((aligned(1), may_alias));

INLINE float float_of_bits(uint32_t bits) { return (union { uint32_t bits; float x; }){bits}.x; }
INLINE uint32_t bits_of_float(float x) { return (union { float x; uint32_t bits; }){x}.bits; }

INLINE void vi_store(int32_t *p, vi v) { memcpy(p, &v, sizeof v); }
INLINE vi chosen(vi mask, vi a, vi b) { return (a & mask) | (b & ~mask); }

/* float16 bits of x: to nearest, ties to even; infinity on overflow; NaN stays NaN. */
INLINE vi halves_of(vf x) {
    vi magnitude = (vi)x & 0x7FFFFFFF, payload = magnitude >> 13 & 0x3FF;
    vi half = (magnitude - (112 << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    /* Floats from 0.5 to 1 have a spacing of 2^-24, the spacing of subnormal float16. */
    vi small = (vi)((vf)magnitude + 0.5f) - 0x3F000000;
    half = chosen(magnitude < 0x38800000, small, half);
    half = chosen(magnitude < 0x477FF000, half, vi_set(0x7C00));   /* up to 65520 */
    half = chosen(magnitude > 0x7F800000, payload - (payload == 0) + 0x7C00, half);
    return half | ((vi)x >> 16 & 0x8000);
}
INLINE uint16_t half_bits(float x) { return (uint16_t)halves_of(vf_set(x))[0]; }
INLINE float half_value(uint16_t half) { return vf_of_halves(vi_set(half))[0]; }

/* Stores the low bytes of n integers. A plain loop: compilers narrow pairs of vectors well, one vector
 * badly. */
INLINE void store_bytes(void *restrict bytes, const int32_t *restrict codes, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ((uint8_t *)bytes)[i] = (uint8_t)codes[i];
}

/* codes[i] = i-th unsigned integer of `packed`, times 2^up; the lowest bits of a byte come first. Eight codes
 * (`bits` bytes) per iteration. */
INLINE void unpack_bits(int8_t *restrict codes, const uint8_t *restrict packed, uint32_t n, int bits,
                        int up) {
    const uint64_t mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < n; i += 8, packed += bits) {
        uint64_t word = 0;
        for (int j = 0; j < 8; j++) word |= (packed[bits * j / 8] >> bits * j % 8 & mask) << (8 * j + up);
        *(cam_u64 *)(codes + i) = word;
    }
}

/* Codes of a stream of unsigned integers that may cross bytes, the lowest bits first; 8 bits as signed codes, less
 * 128. Eight codes (`bits` bytes) per iteration. */
INLINE void unpack_stream(int8_t *restrict codes, const uint8_t *restrict packed, uint32_t n, int bits) {
    const uint64_t mask = (1u << bits) - 1, flip = bits == 8 ? 0x8080808080808080u : 0;
    for (uint32_t i = 0; i < n; i += 8, packed += bits) {
        uint64_t stream = 0, word = 0;
        memcpy(&stream, packed, (size_t)bits);
        for (int j = 0; j < 8; j++) word |= (stream >> bits * j & mask) << 8 * j;
        *(cam_u64 *)(codes + i) = word ^ flip;
    }
}

/* Unpacks interleaved integers: in each run of `width` bytes (a multiple of 8), the first fields of all bytes
 * precede the second fields. Eight bytes per iteration, as no field crosses a byte. The fields are placed
 * above the lowest `up` bits of `codes`; with `up` 0 the old `codes` are not read. */
INLINE void unpack_above(int8_t *restrict codes, const uint8_t *restrict packed, uint32_t n_bytes, int bits,
                         uint32_t width, int up) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    for (uint32_t run = 0; run < n_bytes; run += width)
        for (int shift = 0; shift < 8; shift += bits, codes += width)
            for (uint32_t i = 0; i < width; i += 8) {
                const uint64_t fields = *(const cam_u64 *)(packed + run + i) >> shift & mask;
                *(cam_u64 *)(codes + i) = up ? *(cam_u64 *)(codes + i) | fields << up : fields;
            }
}
INLINE void unpack_wide(int8_t *codes, const uint8_t *packed, uint32_t n_bytes, int bits, uint32_t width) {
    unpack_above(codes, packed, n_bytes, bits, width, 0);
}

/* codes[i] = table[codes[i]]. */
INLINE void look_up_codes(int8_t *codes, const int8_t *table, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) codes[i] = table[codes[i]];
}

/* values[i] = scale * (codes[i] - zero). */
INLINE void scaled_codes(float *values, float scale, const int8_t *codes, int zero, uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES)
        vf_store(values + i, scale * vi_float(vi_s8(codes + i) - zero));
}

/* values[i] = scale * (codes[i] - zero) + shift. */
INLINE void affine_codes(float *values, float scale, const int8_t *codes, int zero, float shift, uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES)
        vf_store(values + i, scale * vi_float(vi_s8(codes + i) - zero) + shift);
}

/* Defines decode_TYPE, which decodes a row, from values_TYPE, which decodes a block of `size` values. */
#define DECODE_ROWS(type, size)                                                               \
    static void decode_##type(const uint8_t *blocks, float *values, uint32_t n) {             \
        const block_##type *block = (const block_##type *)blocks;                             \
        for (uint32_t i = 0; i < n; i += size) values_##type(block++, values + i);            \
    }

/* Defines encode_TYPE, which encodes a row, from pack_TYPE, which encodes a block. */
#define ENCODE_ROWS(type, size)                                                               \
    static void encode_##type(const float *values, uint8_t *blocks, uint32_t n) {             \
        block_##type *block = (block_##type *)blocks;                                         \
        for (uint32_t i = 0; i < n; i += size) pack_##type(values + i, block++);              \
    }

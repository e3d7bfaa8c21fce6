/* Codecs of the legacy types: blocks of 32 values with one scale, the _1 types also with one minimum. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"

/* 32 codes: the low nibbles of 16 bytes, then their high nibbles. */
INLINE void four_bits(int8_t *codes, const uint8_t *q) { unpack_wide(codes, q, 16, 4, 16); }

/* 32 codes with their fifth bits in `high`. Eight bits per iteration: byte i of a word of eight copies keeps
 * bit i, and an addition carries that bit to the top of the byte. */
INLINE void five_bits(int8_t *restrict codes, const uint8_t *restrict q, uint32_t high) {
    for (int i = 0; i < 32; i += 8) {
        const uint64_t four = *(const cam_u64 *)(q + i % 16) >> i / 16 * 4 & 0x0F0F0F0F0F0F0F0F;
        const uint64_t kept = 0x0101010101010101u * (high >> i & 255) & 0x8040201008040201u;
        *(cam_u64 *)(codes + i) = four | ((kept + 0x00406070787C7E7F) >> 3 & 0x1010101010101010);
    }
}

/* value = d * (q - 8) */
static void values_q4_0(const block_q4_0 *block, float *values) {
    int8_t codes[32];
    four_bits(codes, block->q);
    scaled_codes(values, half_value(block->d), codes, 8, 32);
}

/* value = d * q + m */
static void values_q4_1(const block_q4_1 *block, float *values) {
    int8_t codes[32];
    four_bits(codes, block->q);
    affine_codes(values, half_value(block->d), codes, 0, half_value(block->m), 32);
}

/* value = d * (q - 16), the fifth bits in `high` */
static void values_q5_0(const block_q5_0 *block, float *values) {
    int8_t codes[32];
    five_bits(codes, block->q, block->high);
    scaled_codes(values, half_value(block->d), codes, 16, 32);
}

static void values_q5_1(const block_q5_1 *block, float *values) {
    int8_t codes[32];
    five_bits(codes, block->q, block->high);
    affine_codes(values, half_value(block->d), codes, 0, half_value(block->m), 32);
}

static void values_q8_0(const block_q8_0 *block, float *values) {
    scaled_codes(values, half_value(block->d), block->q, 0, 32);
}

DECODE_ROWS(q4_0, 32)
DECODE_ROWS(q4_1, 32)
DECODE_ROWS(q5_0, 32)
DECODE_ROWS(q5_1, 32)
DECODE_ROWS(q8_0, 32)

enum { LEAST_NAN = 0x7F800001, QUIET_NAN = 0x7FC00000 };

INLINE float inverse_of(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

/* Bits of the largest magnitude of 32 values; bits of non-negative floats sort like the floats. Any NaN gives
 * LEAST_NAN, so that all blocks with a NaN encode alike. */
INLINE uint32_t top_of_32(const float *x) {
    uint32_t top = 0;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t magnitude = bits_of_float(x[i]) & 0x7FFFFFFF;
        top = magnitude > top ? magnitude : top;
    }
    return top < LEAST_NAN ? top : LEAST_NAN;
}

/* First value of the largest magnitude; NaN if any value is NaN. */
INLINE float largest_of_32(const float *x) {
    uint32_t top = top_of_32(x), first = 31;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t place = (bits_of_float(x[i]) & 0x7FFFFFFF) >= top ? i : 31;
        first = place < first ? place : first;
    }
    return x[first];
}

/* codes[i] = min(trunc((x[i] - low) * by + half), top). The product is never negative; if a scale underflowed
 * or a value is not finite, the product is infinite or NaN and the code is 0. */
INLINE void whole_codes(int32_t *codes, const float *x, float low, float by, float half, int top) {
    for (uint32_t i = 0; i < 32; i += LANES) {
        vf real = (vf_load(x + i) - low) * by + half;
        vi code = __builtin_convertvector(vf_pick((real > -1.0f) & (real < 256.0f), real, (vf){0}), vi);
        vi_store(codes + i, chosen(code < top, code, vi_set(top)));
    }
}

INLINE void pack_nibbles(uint8_t *q, const int32_t *codes) {   /* drops the fifth bits */
    int32_t pairs[16];
    for (uint32_t i = 0; i < 16; i++) pairs[i] = (codes[i] & 15) | codes[16 + i] << 4;
    store_bytes(q, pairs, 16);
}
INLINE uint32_t fifth_bits(const int32_t *codes) {
    uint32_t high = 0;
    for (uint32_t i = 0; i < 32; i++) high |= (uint32_t)(codes[i] >> 4) << i;
    return high;
}

/* Scale and minimum of a block with codes 0..top; NaN if any value is NaN. Of zeros of both signs the first
 * is the minimum; NumPy's choice depends on the machine, and both zeros decode to the same bits. */
typedef struct { float d, low; } cam_span;
INLINE cam_span span_of(const float *x, float top) {
    float low = x[0], high = x[0];
    for (uint32_t i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    low = top_of_32(x) == LEAST_NAN ? float_of_bits(QUIET_NAN) : low;
    return (cam_span){(high - low) / top, low};
}

/* d = (value of largest magnitude) / -8, so that this value has code 0 exactly. */
static void pack_q4_0(const float *x, block_q4_0 *block) {
    int32_t codes[32];
    float d = largest_of_32(x) / -8.0f;
    whole_codes(codes, x, 0.0f, inverse_of(d), 8.5f, 15);
    block->d = half_bits(d);
    pack_nibbles(block->q, codes);
}

static void pack_q4_1(const float *x, block_q4_1 *block) {
    int32_t codes[32];
    cam_span span = span_of(x, 15.0f);
    whole_codes(codes, x, span.low, inverse_of(span.d), 0.5f, 15);
    block->d = half_bits(span.d), block->m = half_bits(span.low);
    pack_nibbles(block->q, codes);
}

static void pack_q5_0(const float *x, block_q5_0 *block) {
    int32_t codes[32];
    float d = largest_of_32(x) / -16.0f;
    whole_codes(codes, x, 0.0f, inverse_of(d), 16.5f, 31);
    block->d = half_bits(d), block->high = fifth_bits(codes);
    pack_nibbles(block->q, codes);
}

static void pack_q5_1(const float *x, block_q5_1 *block) {
    int32_t codes[32];
    cam_span span = span_of(x, 31.0f);
    whole_codes(codes, x, span.low, inverse_of(span.d), 0.5f, 31);
    block->d = half_bits(span.d), block->m = half_bits(span.low), block->high = fifth_bits(codes);
    pack_nibbles(block->q, codes);
}

/* Rounds x to nearest, ties away from zero; 0 if x is not finite. */
INLINE vi nearest_codes(vf x) {
    vf size = (vf)((vi)x & 0x7FFFFFFF);
    size = vf_pick(size < 256.0f, size, (vf){0});
    vi floor = __builtin_convertvector(size, vi), sign = (vi)x >> 31;
    vi code = floor - (size - vi_float(floor) >= 0.5f);
    return (code ^ sign) - sign;
}

/* d = (largest magnitude) / 127 */
static void pack_q8_0(const float *x, block_q8_0 *block) {
    float d = float_of_bits(top_of_32(x)) / 127.0f, by = inverse_of(d);
    int32_t codes[32];
    for (uint32_t i = 0; i < 32; i += LANES) vi_store(codes + i, nearest_codes(vf_load(x + i) * by));
    store_bytes(block->q, codes, 32);
    block->d = half_bits(d);
}

ENCODE_ROWS(q4_0, 32)
ENCODE_ROWS(q4_1, 32)
ENCODE_ROWS(q5_0, 32)
ENCODE_ROWS(q5_1, 32)
ENCODE_ROWS(q8_0, 32)

/* Codecs of the K types: super-blocks of 256 values, whose groups have quantized scales. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"

/* Eight scales and eight minimums of q4_k and q5_k, six bits each. The first four are the low 6 bits of bytes
 * 0-3 and 4-7; the last four have their low 4 bits in bytes 8-11 and their high 2 bits on top of bytes
 * 0-7. */
typedef struct { uint8_t scale[8], minimum[8]; } cam_scales;
INLINE cam_scales scales_of_12(const uint8_t *s) {
    uint32_t low[2], high, scale[2], minimum[2];   /* four bytes per word */
    memcpy(low, s, 8), memcpy(&high, s + 8, 4);
    scale[0] = low[0] & 0x3F3F3F3F, scale[1] = (high & 0x0F0F0F0F) | (low[0] >> 2 & 0x30303030);
    minimum[0] = low[1] & 0x3F3F3F3F, minimum[1] = (high >> 4 & 0x0F0F0F0F) | (low[1] >> 2 & 0x30303030);
    cam_scales scales;
    memcpy(scales.scale, scale, 8), memcpy(scales.minimum, minimum, 8);
    return scales;
}

/* 16 scales of q3_k: 16 nibbles in the first 8 bytes, 16 pairs of upper bits in the last 4; minus 32. */
INLINE void six_bits_of_12(int8_t *scales, const uint8_t *s) {
    unpack_wide(scales, s, 8, 4, 8);
    for (uint32_t i = 0; i < 16; i++) {
        const int upper = s[8 + i % 4] >> i / 4 * 2 & 3;
        scales[i] = (int8_t)((scales[i] | upper << 4) - 32);
    }
}

/* 8 groups of 32: value = (d * scale) * q - dmin * minimum */
INLINE void eight_groups(float *values, const int8_t *codes, const uint8_t *packed, float d, float dmin) {
    cam_scales s = scales_of_12(packed);
    for (uint32_t g = 0; g < 8; g++)
        affine_codes(values + 32 * g, d * s.scale[g], codes + 32 * g, 0, -(dmin * s.minimum[g]), 32);
}

/* 16 groups of 16: value = (d * scale) * (q - zero) */
INLINE void sixteen_groups(float *values, const int8_t *codes, float d, const int8_t *scales, int zero) {
    for (uint32_t g = 0; g < 16; g++) scaled_codes(values + 16 * g, d * scales[g], codes + 16 * g, zero, 16);
}

/* 16 groups of 16, value as in eight_groups; scales are the low nibbles of `scales`, minimums the high. */
static void values_q2_k(const block_q2_k *block, float *values) {
    int8_t codes[256];
    float d = half_value(block->d), dmin = half_value(block->dmin);
    unpack_wide(codes, block->q, 64, 2, 32);
    for (uint32_t g = 0; g < 16; g++) {
        uint8_t s = block->scales[g];
        affine_codes(values + 16 * g, d * (s & 15), codes + 16 * g, 0, -(dmin * (s >> 4)), 16);
    }
}

/* The third bit of each code is in `high`. */
static void values_q3_k(const block_q3_k *block, float *values) {
    int8_t codes[256], scales[16];
    unpack_wide(codes, block->q, 64, 2, 32);
    unpack_above(codes, block->high, 32, 1, 32, 2);
    six_bits_of_12(scales, block->scales);
    sixteen_groups(values, codes, half_value(block->d), scales, 4);
}

static void values_q4_k(const block_q4_k *block, float *values) {
    int8_t codes[256];
    unpack_wide(codes, block->q, 128, 4, 32);
    eight_groups(values, codes, block->scales, half_value(block->d), half_value(block->dmin));
}

/* The fifth bit of each code is in `high`. */
static void values_q5_k(const block_q5_k *block, float *values) {
    int8_t codes[256];
    unpack_wide(codes, block->q, 128, 4, 32);
    unpack_above(codes, block->high, 32, 1, 32, 4);
    eight_groups(values, codes, block->scales, half_value(block->d), half_value(block->dmin));
}

/* The upper two bits of each code are in `high`. */
static void values_q6_k(const block_q6_k *block, float *values) {
    int8_t codes[256];
    unpack_wide(codes, block->low, 128, 4, 64);
    unpack_above(codes, block->high, 64, 2, 32, 4);
    sixteen_groups(values, codes, half_value(block->d), block->scales, 32);
}

DECODE_ROWS(q2_k, 256)
DECODE_ROWS(q3_k, 256)
DECODE_ROWS(q4_k, 256)
DECODE_ROWS(q5_k, 256)
DECODE_ROWS(q6_k, 256)

/* Codecs of 1 to 4 bits without a grid: 4-bit floats, ternary and binary types. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"

/* Half of 2^(e - 127); the result is subnormal for e = 0 and e = 1. */
INLINE float half_of_e8m0(uint32_t e) { return float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

/* Half of the E4M3 number in the low seven bits. Code 0x7F (NaN) gives 0, but code 0xFF does not. */
INLINE float half_of_ue4m3(uint32_t code) {
    uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
    uint32_t whole = exponent ? mantissa + 8 : mantissa, power = (exponent ? exponent : 1) + 127 - 11;
    return code == 0x7F ? 0.0f : (float)whole * float_of_bits(power << 23);
}

/* value = 2^(e - 127) * E2M1 */
static void values_mxfp4(const block_mxfp4 *block, float *values) {
    int8_t codes[32];
    unpack_wide(codes, block->q, 16, 4, 16);
    look_up_codes(codes, e2m1_values, 32);
    scaled_codes(values, half_of_e8m0(block->e), codes, 0, 32);
}

/* value = scale * E2M1, 16 in a group */
static void values_nvfp4(const block_nvfp4 *block, float *values) {
    int8_t codes[64];
    unpack_wide(codes, block->q, 32, 4, 8);
    look_up_codes(codes, e2m1_values, 64);
    for (uint32_t g = 0; g < 4; g++)
        scaled_codes(values + 16 * g, half_of_ue4m3(block->scales[g]), codes + 16 * g, 0, 16);
}

/* Base-3 digits, which a byte stores as a fraction of 256, so that multiplication by 3 yields the next digit.
 * The first digits of all bytes precede the second digits. */
INLINE void unpack_digits(int8_t *codes, const uint8_t *q, uint32_t n_bytes, int n_digits) {
    uint32_t power = 1;
    for (int digit = 0; digit < n_digits; digit++, power *= 3, codes += n_bytes)
        for (uint32_t i = 0; i < n_bytes; i++) codes[i] = (int8_t)((uint8_t)(q[i] * power) * 3 >> 8);
}

static void digits_tq1_0(int8_t *codes, const block_tq1_0 *block) {
    unpack_digits(codes, block->q, 32, 5);
    unpack_digits(codes + 160, block->q + 32, 16, 5);
    unpack_digits(codes + 240, block->high, 4, 4);
}

/* value = d * (digit - 1) */
static void values_tq1_0(const block_tq1_0 *block, float *values) {
    int8_t codes[256];
    digits_tq1_0(codes, block);
    scaled_codes(values, half_value(block->d), codes, 1, 256);
}

/* value = d * (q - 1) */
static void values_tq2_0(const block_tq2_0 *block, float *values) {
    int8_t codes[256];
    unpack_wide(codes, block->q, 64, 2, 32);
    scaled_codes(values, half_value(block->d), codes, 1, 256);
}

/* value = d where the bit is set, else -d */
static void values_q1_0(const block_q1_0 *block, float *values) {
    int8_t codes[128];
    unpack_bits(codes, block->q, 128, 1, 1);   /* 2 or 0, minus 1 */
    scaled_codes(values, half_value(block->d), codes, 1, 128);
}

/* value = d * (q - 1) */
static void values_q2_0(const block_q2_0 *block, float *values) {
    int8_t codes[64];
    unpack_bits(codes, block->q, 64, 2, 0);
    scaled_codes(values, half_value(block->d), codes, 1, 64);
}

DECODE_ROWS(mxfp4, 32)
DECODE_ROWS(nvfp4, 64)
DECODE_ROWS(tq1_0, 256)
DECODE_ROWS(tq2_0, 256)
DECODE_ROWS(q1_0, 128)
DECODE_ROWS(q2_0, 64)

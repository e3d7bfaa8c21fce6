/* Codecs of types without blocks: floats and integers, little-endian. Included by codecs.c. */
#include "codec_bits.h"
#include "codecs.h"

/* Decoder of a C arithmetic type: one rounding to float32; a float64 beyond its range gives infinity. */
#define DECODE_NUMBERS(name, number)                                                          \
    static void decode_##name(const uint8_t *restrict blocks, float *restrict values, uint32_t n) { \
        for (uint32_t i = 0; i < n; i++) {                                                    \
            number value;                                                                     \
            memcpy(&value, blocks + sizeof value * i, sizeof value);                          \
            values[i] = (float)value;                                                         \
        }                                                                                     \
    }
DECODE_NUMBERS(f64, double)
DECODE_NUMBERS(i8, int8_t)
DECODE_NUMBERS(i16, int16_t)
DECODE_NUMBERS(i32, int32_t)
DECODE_NUMBERS(i64, int64_t)

static void decode_f32(const uint8_t *blocks, float *values, uint32_t n) { memcpy(values, blocks, 4ull * n); }
static void encode_f32(const float *values, uint8_t *blocks, uint32_t n) { memcpy(blocks, values, 4ull * n); }

/* Decodes up to LANES values through a temporary vector, so that no load passes the end. */
INLINE void some_of_f16(const uint8_t *blocks, float *values, uint32_t n) {
    uint16_t halves[LANES] = {0};
    float floats[LANES];
    memcpy(halves, blocks, 2 * n);
    vf_store(floats, vf_half(halves));
    memcpy(values, floats, 4 * n);
}
static void decode_f16(const uint8_t *blocks, float *values, uint32_t n) {
    for (; n >= LANES; n -= LANES, blocks += 2 * LANES, values += LANES) some_of_f16(blocks, values, LANES);
    some_of_f16(blocks, values, n);
}

/* Encodes up to 32 values through temporary vectors, so that no load passes the end. */
INLINE void some_to_f16(const float *values, uint8_t *blocks, uint32_t n) {
    float floats[32] = {0};
    int32_t codes[32];
    uint16_t halves[32];
    memcpy(floats, values, 4 * n);
    for (uint32_t i = 0; i < 32; i += LANES) vi_store(codes + i, halves_of(vf_load(floats + i)));
    for (uint32_t i = 0; i < 32; i++) halves[i] = (uint16_t)codes[i];
    memcpy(blocks, halves, 2 * n);
}
static void encode_f16(const float *values, uint8_t *blocks, uint32_t n) {
    for (; n >= 32; n -= 32, blocks += 64, values += 32) some_to_f16(values, blocks, 32);
    some_to_f16(values, blocks, n);
}

/* bf16 is the upper half of a float32. */
static void decode_bf16(const uint8_t *restrict blocks, float *restrict values, uint32_t n) {
    const cam_u16 *uppers = (const cam_u16 *)blocks;
    for (uint32_t i = 0; i < n; i++) values[i] = float_of_bits((uint32_t)uppers[i] << 16);
}

/* Rounds to nearest, ties to even. A NaN gets its quiet bit: without it, truncation could give infinity. */
INLINE uint16_t bfloat_bits(float x) {
    uint32_t bits = bits_of_float(x), is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    return (uint16_t)(is_nan ? bits >> 16 | 64 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static void encode_bf16(const float *restrict values, uint8_t *restrict blocks, uint32_t n) {
    cam_u16 *uppers = (cam_u16 *)blocks;
    for (uint32_t i = 0; i < n; i++) uppers[i] = bfloat_bits(values[i]);
}

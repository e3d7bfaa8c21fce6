/* A batch: LANES blocks of one type, one per lane, with values below 4 in magnitude, and their codes. */
#pragma once
#include "fit.h"

enum { MOST_VALUES = 256 };   /* of a block */

typedef struct {
    vf x[MOST_VALUES], w[MOST_VALUES];
    vf up, down;                         /* the power of two of each block, and its inverse */
    uint8_t codes[LANES][MOST_VALUES];   /* codes by block */
} cam_batch;

/* Quantizes a batch, and writes its first n blocks. */
typedef void cam_quantizer(cam_batch *batch, uint8_t *blocks, uint32_t n);

/* Biased exponent of the largest magnitude, so that its power of two and its inverse are normal. */
static uint32_t top_exponent(const float *values, uint32_t n) {
    uint32_t top = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = bits_of_float(values[i]) & 0x7FFFFFFF;
        top = size > top ? size : top;
    }
    top >>= 23;
    return top < 1 ? 1 : top > 253 ? 253 : top;
}

/* Fills one lane; `values` NULL fills it with zeros. `importance` NULL: all weights are 1. */
static void fill_lane(cam_batch *batch, uint32_t lane, const float *values, const float *importance,
                      uint32_t size) {
    const uint32_t exponent = values ? top_exponent(values, size) : 127;
    const float down = float_of_bits((254 - exponent) << 23);
    float *x = (float *)batch->x + lane, *w = (float *)batch->w + lane;
    for (uint32_t i = 0; i < size; i++) x[i * LANES] = values ? values[i] * down : 0.0f;
    for (uint32_t i = 0; i < size; i++) w[i * LANES] = importance ? importance[i] : 1.0f;
    ((float *)&batch->up)[lane] = float_of_bits(exponent << 23);
    ((float *)&batch->down)[lane] = down;
}

/* float16 bits of scales in the units of the blocks, and their values after rounding in the units of x; 0
 * for a scale that overflows. The sum turns -0 into 0. */
typedef struct { vi bits; vf value; } cam_stored;
INLINE cam_stored stored_half(const cam_batch *batch, vf d) {
    vi bits = halves_of(d * batch->up + vf_set(0.0f));
    vf value = vf_of_halves(bits);
    return (cam_stored){bits, vf_pick(vf_finite(value), value * batch->down, (vf){0})};
}

/* Stores code i of each block: a float with an integer value. */
INLINE void put_codes(cam_batch *batch, uint32_t i, vf code) {
    int32_t each[LANES];
    vi_store(each, __builtin_convertvector(code, vi));
    for (int lane = 0; lane < LANES; lane++) batch->codes[lane][i] = (uint8_t)each[lane];
}

/* Packs integers of `bits` bits: the inverse of unpack_wide. The lowest `bits` bits above `down` are taken. */
INLINE void pack_wide(uint8_t *restrict packed, const uint8_t *restrict codes, uint32_t n_bytes, int bits,
                      uint32_t width, int down) {
    const int mask = (1 << bits) - 1;
    for (uint32_t run = 0; run < n_bytes; run += width, codes += width * (8 / (uint32_t)bits))
        for (uint32_t i = 0; i < width; i++) {
            int byte = 0;
            for (int k = 0; k < 8 / bits; k++) byte |= (codes[(uint32_t)k * width + i] >> down & mask) << k * bits;
            packed[run + i] = (uint8_t)byte;
        }
}
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Quantizers of blocks with one float16 scale, of codes that are integers. */
#include "batch.h"

static const float starts_4[] = {-6.0f, -6.5f, -7.0f, -7.5f, -8.0f, -8.5f, -9.0f, 7.0f, 8.0f};
static const float starts_5[] = {-14.0f, -15.0f, -15.5f, -16.0f, -16.5f, -17.0f, 15.0f, 16.0f};
static const float ternary_starts[] = {1.0f, 2.0f, 3.0f, 4.5f};
static const float q2_0_starts[] = {1.0f, 2.0f, 3.0f, 4.0f, -1.0f, -2.0f, -3.0f, -4.0f};

/* Codes less the lowest code; returns d as float16 bits. */
INLINE vi scaled_codes_of(cam_batch *batch, uint32_t size, cam_whole range, const float *starts, int n_starts) {
    const cam_nearest how = {TABLE_NONE, range};
    cam_stored d = stored_half(batch, fit_scale(batch->x, batch->w, (int)size, how, starts, n_starts).scale);
    vf by = inverse(d.value);
    for (uint32_t i = 0; i < size; i++) put_codes(batch, i, whole_of(range, batch->x[i] * by) - range.low);
    return d.bits;
}

typedef struct { vi d, m; } cam_parameters;
INLINE cam_parameters signed_codes_of(cam_batch *batch, float top) {
    cam_fit fit = fit_affine(batch->x, batch->w, 32, top, past_top, COUNT(past_top), q4_shares, N_SHARES, 1);
    cam_stored d = stored_half(batch, fit.scale), m = stored_half(batch, fit.low);
    vf by = inverse(d.value);
    for (uint32_t i = 0; i < 32; i++)
        put_codes(batch, i, whole_of((cam_whole){0, top}, (batch->x[i] - m.value) * by));
    return (cam_parameters){d.bits, m.bits};
}

INLINE uint32_t fifths(const uint8_t *codes) {
    uint32_t high = 0;
    for (uint32_t i = 0; i < 32; i++) high |= (uint32_t)(codes[i] >> 4) << i;
    return high;
}

static void quantize_q4_0(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vi d = scaled_codes_of(batch, 32, (cam_whole){-8, 7}, starts_4, COUNT(starts_4));
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q4_0 *block = (block_q4_0 *)blocks + lane;
        block->d = (uint16_t)d[lane];
        pack_wide(block->q, batch->codes[lane], 16, 4, 16, 0);
    }
}

static void quantize_q5_0(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vi d = scaled_codes_of(batch, 32, (cam_whole){-16, 15}, starts_5, COUNT(starts_5));
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q5_0 *block = (block_q5_0 *)blocks + lane;
        block->d = (uint16_t)d[lane], block->high = fifths(batch->codes[lane]);
        pack_wide(block->q, batch->codes[lane], 16, 4, 16, 0);
    }
}

static void quantize_q4_1(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_parameters parameters = signed_codes_of(batch, 15);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q4_1 *block = (block_q4_1 *)blocks + lane;
        block->d = (uint16_t)parameters.d[lane], block->m = (uint16_t)parameters.m[lane];
        pack_wide(block->q, batch->codes[lane], 16, 4, 16, 0);
    }
}

static void quantize_q5_1(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_parameters parameters = signed_codes_of(batch, 31);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q5_1 *block = (block_q5_1 *)blocks + lane;
        block->d = (uint16_t)parameters.d[lane], block->m = (uint16_t)parameters.m[lane];
        block->high = fifths(batch->codes[lane]);
        pack_wide(block->q, batch->codes[lane], 16, 4, 16, 0);
    }
}

INLINE vi ternary_codes_of(cam_batch *batch) {
    return scaled_codes_of(batch, 256, (cam_whole){-1, 1}, ternary_starts, COUNT(ternary_starts));
}

static void quantize_tq2_0(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vi d = ternary_codes_of(batch);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_tq2_0 *block = (block_tq2_0 *)blocks + lane;
        pack_wide(block->q, batch->codes[lane], 64, 2, 32, 0);
        block->d = (uint16_t)d[lane];
    }
}

/* n bytes of base-3 digits as fractions of 256, rounded up; digit k of byte i is codes[k * n + i]. */
INLINE void pack_base_3(uint8_t *packed, const uint8_t *codes, uint32_t n, uint32_t n_digits) {
    static const uint32_t powers[5] = {81, 27, 9, 3, 1};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = 0;
        for (uint32_t k = 0; k < n_digits; k++) number += codes[k * n + i] * powers[k];
        packed[i] = (uint8_t)((number * 256 + 242) / 243);
    }
}

static void quantize_tq1_0(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vi d = ternary_codes_of(batch);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_tq1_0 *block = (block_tq1_0 *)blocks + lane;
        pack_base_3(block->q, batch->codes[lane], 32, 5);
        pack_base_3(block->q + 32, batch->codes[lane] + 160, 16, 5);
        pack_base_3(block->high, batch->codes[lane] + 240, 4, 4);
        block->d = (uint16_t)d[lane];
    }
}

/* d = weighted mean of the magnitudes. */
static void quantize_q1_0(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vf sum = batch->w[0] * vf_abs(batch->x[0]);
    for (int i = 1; i < 128; i++) sum = sum + batch->w[i] * vf_abs(batch->x[i]);
    cam_stored d = stored_half(batch, quotient(sum, sum_of(batch->w, 128)));
    for (uint32_t i = 0; i < 128; i++)
        put_codes(batch, i, vf_pick(batch->x[i] >= (vf){0}, vf_set(1.0f), (vf){0}));
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q1_0 *block = (block_q1_0 *)blocks + lane;
        block->d = (uint16_t)d.bits[lane];
        pack_wide(block->q, batch->codes[lane], 16, 1, 1, 0);
    }
}

static void quantize_q2_0(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vi d = scaled_codes_of(batch, 64, (cam_whole){-1, 2}, q2_0_starts, COUNT(q2_0_starts));
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q2_0 *block = (block_q2_0 *)blocks + lane;
        block->d = (uint16_t)d[lane];
        pack_wide(block->q, batch->codes[lane], 16, 2, 1, 0);
    }
}

/* Quantizers of the K types: scales of groups are fitted, then rounded to codes of a scale of scales. */
#include "batch.h"

enum { MOST_GROUPS = 16 };

/* Values d * scale * q: size of a group, codes q, starts of their fits; codes of scales and their starts. */
typedef struct {
    int size;
    cam_nearest codes;
    const float *starts;
    int n_starts;
    cam_whole scales;
    const float *scale_starts;
    int n_scale_starts;
} cam_linear;

static const float q3_starts[] = {-3.0f, -3.5f, -4.0f, -4.5f, -5.0f, 3.0f, 3.5f};
static const float q3_scale_starts[] = {-31.0f, -32.0f, -33.0f};
static const float q6_starts[] = {-30.5f, -31.0f, -31.5f, -32.0f, -32.5f, -33.0f, -33.5f, -34.0f, -34.5f};
static const float q6_scale_starts[] = {-127.0f, -128.0f, -129.0f};
#define Q3_LINEAR                                                                                       \
    (cam_linear){16, {TABLE_NONE, {-4, 3}}, q3_starts, COUNT(q3_starts), {-32, 31}, q3_scale_starts,    \
                 COUNT(q3_scale_starts)}
#define Q6_LINEAR                                                                                       \
    (cam_linear){16, {TABLE_NONE, {-32, 31}}, q6_starts, COUNT(q6_starts), {-128, 127}, q6_scale_starts,\
                 COUNT(q6_scale_starts)}

/* float16 d of each block, and its codes of scales by group. */
typedef struct { vi d; int32_t scales[MOST_GROUPS][LANES]; } cam_linear_codes;

/* Fits the scales; step times codes[g] is the scale of group g. */
INLINE vf linear_scales(const cam_batch *batch, cam_linear kind, vf *codes, cam_linear_codes *out) {
    const int n = 256 / kind.size;
    vf scales[MOST_GROUPS], curvatures[MOST_GROUPS];
    for (int g = 0; g < n; g++) {
        const vf *x = batch->x + g * kind.size, *w = batch->w + g * kind.size;
        cam_line line = fit_scale(x, w, kind.size, kind.codes, kind.starts, kind.n_starts);
        scales[g] = line.scale, curvatures[g] = line.curvature;
    }
    const cam_nearest whole = {TABLE_NONE, kind.scales};
    cam_line top = fit_scale(scales, curvatures, n, whole, kind.scale_starts, kind.n_scale_starts);
    cam_stored d = stored_half(batch, top.scale);
    vf by = inverse(d.value);
    for (int g = 0; g < n; g++) {
        codes[g] = whole_of(kind.scales, scales[g] * by);
        vi_store(out->scales[g], __builtin_convertvector(codes[g], vi));
    }
    out->d = d.bits;
    return d.value;
}

/* Codes less the lowest code. */
INLINE void linear_codes(cam_batch *batch, cam_linear kind, cam_linear_codes *out) {
    vf codes[MOST_GROUPS];
    vf step = linear_scales(batch, kind, codes, out);
    for (int g = 0; g < 256 / kind.size; g++) {
        vf by = inverse(step * codes[g]);
        for (int i = g * kind.size; i < (g + 1) * kind.size; i++)
            put_codes(batch, (uint32_t)i, nearest_to(kind.codes, batch->x[i] * by) - kind.codes.whole.low);
    }
}

/* Values d * scale * q - dmin * minimum. */
typedef struct {
    int size;
    float top;                  /* largest q */
    const float *shares;        /* of the smallest value, tried as minimums */
    float scale_top;            /* largest code of scales and minimums */
} cam_with_minimum;

enum { N_SHARES = 3 };
static const float q2_shares[N_SHARES] = {0.6f, 0.8f, 1.0f}, q4_shares[N_SHARES] = {0.8f, 0.9f, 1.0f};
static const float past_top[] = {-0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f, 1.0f};
static const float scales_past_top[] = {-2.0f, -1.0f, -0.5f, 0.0f, 0.5f, 1.0f};

typedef struct {
    vi d, dmin;
    int32_t scales[MOST_GROUPS][LANES], minimums[MOST_GROUPS][LANES];
} cam_affine_codes;

/* Rounds n scales to codes in place; returns the scale of scales. */
INLINE cam_stored code_scales(const cam_batch *batch, vf *scales, const vf *w, int n, float top,
                              int32_t codes[][LANES]) {
    float starts[COUNT(scales_past_top)];
    for (int i = 0; i < COUNT(starts); i++) starts[i] = top + scales_past_top[i];
    const cam_whole range = {0, top};
    cam_line line = fit_scale(scales, w, n, (cam_nearest){TABLE_NONE, range}, starts, COUNT(starts));
    cam_stored d = stored_half(batch, line.scale);
    vf by = inverse(d.value);
    for (int g = 0; g < n; g++) {
        scales[g] = whole_of(range, scales[g] * by);
        vi_store(codes[g], __builtin_convertvector(scales[g], vi));
    }
    return d;
}

/* Sums of a fitted group: weights; w * q; w * q * q; w * x. */
typedef struct { vf w, q, qq, x; } cam_group_sums;
INLINE cam_group_sums group_sums(const vf *x, const vf *w, int n, cam_fit fit, cam_whole range) {
    cam_group_sums sums = {w[0], {0}, {0}, {0}};
    vf by = inverse(fit.scale);
    for (int i = 0; i < n; i++) {
        vf q = whole_of(range, (x[i] - fit.low) * by), wq = w[i] * q;
        if (i) sums.w = sums.w + w[i];
        sums.q = sums.q + wq, sums.qq = sums.qq + wq * q, sums.x = sums.x + w[i] * x[i];
    }
    return sums;
}

INLINE void affine_codes_of(cam_batch *batch, cam_with_minimum kind, cam_affine_codes *out) {
    const int n = 256 / kind.size;
    const cam_whole range = {0, kind.top};
    vf scales[MOST_GROUPS], minimums[MOST_GROUPS], curvatures[MOST_GROUPS], weights[MOST_GROUPS];
    cam_group_sums sums[MOST_GROUPS];
    for (int g = 0; g < n; g++) {
        const vf *x = batch->x + g * kind.size, *w = batch->w + g * kind.size;
        cam_fit fit = fit_affine(x, w, kind.size, kind.top, past_top, COUNT(past_top), kind.shares, N_SHARES, 0);
        sums[g] = group_sums(x, w, kind.size, fit, range);
        scales[g] = fit.scale, curvatures[g] = sums[g].qq, weights[g] = sums[g].w;
    }
    cam_stored d = code_scales(batch, scales, curvatures, n, kind.scale_top, out->scales);
    for (int g = 0; g < n; g++)   /* the best minimum with the rounded scale */
        minimums[g] = vf_max(quotient(d.value * scales[g] * sums[g].q - sums[g].x, sums[g].w), (vf){0});
    cam_stored dmin = code_scales(batch, minimums, weights, n, kind.scale_top, out->minimums);
    for (int g = 0; g < n; g++) {
        vf low = dmin.value * minimums[g], by = inverse(d.value * scales[g]);
        for (int i = g * kind.size; i < (g + 1) * kind.size; i++)
            put_codes(batch, (uint32_t)i, whole_of(range, (batch->x[i] + low) * by));
    }
    out->d = d.bits, out->dmin = dmin.bits;
}

static void quantize_q2_k(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_affine_codes codes;
    affine_codes_of(batch, (cam_with_minimum){16, 3, q2_shares, 15}, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q2_k *block = (block_q2_k *)blocks + lane;
        for (int g = 0; g < 16; g++)
            block->scales[g] = (uint8_t)(codes.scales[g][lane] | codes.minimums[g][lane] << 4);
        pack_wide(block->q, batch->codes[lane], 64, 2, 32, 0);
        block->d = (uint16_t)codes.d[lane], block->dmin = (uint16_t)codes.dmin[lane];
    }
}

/* Scales of 6 bits: nibbles in the first 8 bytes, upper bit pairs in the last 4. */
static void quantize_q3_k(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_linear_codes codes;
    linear_codes(batch, Q3_LINEAR, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q3_k *block = (block_q3_k *)blocks + lane;
        uint8_t scales[16];
        for (int g = 0; g < 16; g++) scales[g] = (uint8_t)(codes.scales[g][lane] + 32);
        pack_wide(block->high, batch->codes[lane], 32, 1, 32, 2);
        pack_wide(block->q, batch->codes[lane], 64, 2, 32, 0);
        pack_wide(block->scales, scales, 8, 4, 8, 0);
        pack_wide(block->scales + 8, scales, 4, 2, 4, 4);
        block->d = (uint16_t)codes.d[lane];
    }
}

/* Eight scales and eight minimums of 6 bits; see codecs_superblock.c. */
INLINE void pack_12(uint8_t *packed, const cam_affine_codes *codes, uint32_t lane) {
    for (int g = 0; g < 4; g++) {
        const int scale = codes->scales[g + 4][lane], minimum = codes->minimums[g + 4][lane];
        packed[g] = (uint8_t)(codes->scales[g][lane] | scale >> 4 << 6);
        packed[g + 4] = (uint8_t)(codes->minimums[g][lane] | minimum >> 4 << 6);
        packed[g + 8] = (uint8_t)((scale & 15) | minimum << 4);
    }
}

static void quantize_q4_k(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_affine_codes codes;
    affine_codes_of(batch, (cam_with_minimum){32, 15, q4_shares, 63}, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q4_k *block = (block_q4_k *)blocks + lane;
        block->d = (uint16_t)codes.d[lane], block->dmin = (uint16_t)codes.dmin[lane];
        pack_12(block->scales, &codes, lane);
        pack_wide(block->q, batch->codes[lane], 128, 4, 32, 0);
    }
}

static void quantize_q5_k(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_affine_codes codes;
    affine_codes_of(batch, (cam_with_minimum){32, 31, q4_shares, 63}, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q5_k *block = (block_q5_k *)blocks + lane;
        block->d = (uint16_t)codes.d[lane], block->dmin = (uint16_t)codes.dmin[lane];
        pack_12(block->scales, &codes, lane);
        pack_wide(block->high, batch->codes[lane], 32, 1, 32, 4);
        pack_wide(block->q, batch->codes[lane], 128, 4, 32, 0);
    }
}

static void quantize_q6_k(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_linear_codes codes;
    linear_codes(batch, Q6_LINEAR, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_q6_k *block = (block_q6_k *)blocks + lane;
        pack_wide(block->low, batch->codes[lane], 128, 4, 64, 0);
        pack_wide(block->high, batch->codes[lane], 64, 2, 32, 4);
        for (int g = 0; g < 16; g++) block->scales[g] = (int8_t)codes.scales[g][lane];
        block->d = (uint16_t)codes.d[lane];
    }
}

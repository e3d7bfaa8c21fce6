/* Quantizers of types whose codes name values of a table: iq4_nl, iq4_xs and the 4-bit floats. */
#include "batch.h"

static const float nl_starts[] = {-127.0f, -119.0f, -111.0f, -104.0f, -135.0f,
                                  113.0f,  106.0f,  97.0f,   89.0f,   120.0f};
static const float xs_scale_starts[] = {-31.0f, -32.0f, -33.0f};
#define XS_LINEAR                                                                                       \
    (cam_linear){32, {TABLE_IQ4, {0, 0}}, nl_starts, COUNT(nl_starts), {-32, 31}, xs_scale_starts,      \
                 COUNT(xs_scale_starts)}

INLINE vf code_of_iq4(vf x) { return step_of(iq4_values, counted, 16, x); }

static void quantize_iq4_nl(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    const cam_nearest how = {TABLE_IQ4, {0, 0}};
    cam_line line = fit_scale(batch->x, batch->w, 32, how, nl_starts, COUNT(nl_starts));
    cam_stored d = stored_half(batch, line.scale);
    vf by = inverse(d.value);
    for (uint32_t i = 0; i < 32; i++) put_codes(batch, i, code_of_iq4(batch->x[i] * by));
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq4_nl *block = (block_iq4_nl *)blocks + lane;
        block->d = (uint16_t)d.bits[lane];
        pack_wide(block->q, batch->codes[lane], 16, 4, 16, 0);
    }
}

static void quantize_iq4_xs(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_linear_codes codes;
    vf scales[MOST_GROUPS];
    vf step = linear_scales(batch, XS_LINEAR, scales, &codes);
    for (uint32_t g = 0; g < 8; g++) {
        vf by = inverse(step * scales[g]);
        for (uint32_t i = 32 * g; i < 32 * g + 32; i++) put_codes(batch, i, code_of_iq4(batch->x[i] * by));
    }
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq4_xs *block = (block_iq4_xs *)blocks + lane;
        uint8_t six[8], high[2];
        for (int g = 0; g < 8; g++) six[g] = (uint8_t)(codes.scales[g][lane] + 32);
        pack_wide(high, six, 2, 2, 1, 4);
        block->d = (uint16_t)codes.d[lane], block->high = (uint16_t)(high[0] | high[1] << 8);
        pack_wide(block->low, six, 4, 4, 1, 0);
        pack_wide(block->q, batch->codes[lane], 128, 4, 16, 0);
    }
}

/* 2^exponent, the lanes' exponents being whole and in range. */
INLINE vf power_of_two(vi exponent) { return (vf)((exponent + 127) << 23); }

INLINE vf e2m1_codes(vf x) {
    return step_of(e2m1_values, counted, 8, vf_abs(x)) + vf_pick(x < (vf){0}, vf_set(8.0f), (vf){0});
}
INLINE void put_e2m1(cam_batch *batch, uint32_t first, uint32_t end, vf half) {
    vf by = inverse(half);
    for (uint32_t i = first; i < end; i++) put_codes(batch, i, e2m1_codes(batch->x[i] * by));
}

/* The weighted squared error with half a scale. */
INLINE vf e2m1_error(const vf *x, const vf *w, int n, vf half) {
    vf by = inverse(half), sum = {0};
    for (int i = 0; i < n; i++) {
        vf miss = x[i] - half * nearest_e2m1(x[i] * by);
        sum = sum + w[i] * miss * miss;
    }
    return sum;
}
INLINE vi vi_most(vi a, vi b) { return chosen(a > b, a, b); }
INLINE vi vi_least(vi a, vi b) { return chosen(a < b, a, b); }

/* The scale is the best of three powers of two. */
static void quantize_mxfp4(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    const vi own = (vi)((vu)batch->up >> 23);   /* biased exponent of the largest value */
    vf best = (vf)vi_set(0x7F800000);
    vi e = {0};
    for (int by = 0; by < 3; by++) {
        vi each = vi_most(own + (int[]){-2, -1, -3}[by], (vi){0});
        vf error = e2m1_error(batch->x, batch->w, 32, power_of_two(each - own - 1));
        vi better = error < best;
        e = chosen(better, each, e), best = vf_pick(better, error, best);
    }
    put_e2m1(batch, 0, 32, power_of_two(e - own - 1));
    for (uint32_t lane = 0; lane < n; lane++) {
        block_mxfp4 *block = (block_mxfp4 *)blocks + lane;
        block->e = (uint8_t)e[lane];
        pack_wide(block->q, batch->codes[lane], 16, 4, 16, 0);
    }
}

/* The largest code of E4M3 whose value is at most x, up to 126. */
INLINE vi ue4m3_code(vf x) {
    x = vf_min(x, vf_set(448.0f));
    vi small = __builtin_convertvector(x * 512.0f, vi);
    return chosen(x < vf_set(0x1p-6f), small, (vi)((vu)x >> 20) - (120 << 3));
}
INLINE vf half_ue4m3_value(vi code) {
    vi exponent = code >> 3, mantissa = code & 7;
    vi whole = chosen(exponent == 0, mantissa, mantissa + 8);
    return vi_float(whole) * power_of_two(vi_most(exponent, vi_set(1)) - 11);
}

/* The code of a group's scale: the best of those around a sixth of its largest value. */
INLINE vi nvfp4_scale(const cam_batch *batch, const vf *x, const vf *w) {
    static const int8_t neighbours[] = {0, 1, -1, 2, -2, 3, -3};
    vi first = ue4m3_code(vf_abs(largest_of(x, 16)) * (float)(1.0 / 6) * batch->up), code = {0};
    vf best = (vf)vi_set(0x7F800000);
    for (int by = 0; by < COUNT(neighbours); by++) {
        vi each = vi_least(vi_most(first + neighbours[by], (vi){0}), vi_set(126));
        vf error = e2m1_error(x, w, 16, half_ue4m3_value(each) * batch->down);
        vi better = error < best;
        code = chosen(better, each, code), best = vf_pick(better, error, best);
    }
    return code;
}

static void quantize_nvfp4(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    vi scales[4];
    for (uint32_t g = 0; g < 4; g++) {
        scales[g] = nvfp4_scale(batch, batch->x + 16 * g, batch->w + 16 * g);
        put_e2m1(batch, 16 * g, 16 * g + 16, half_ue4m3_value(scales[g]) * batch->down);
    }
    for (uint32_t lane = 0; lane < n; lane++) {
        block_nvfp4 *block = (block_nvfp4 *)blocks + lane;
        for (int g = 0; g < 4; g++) block->scales[g] = (uint8_t)scales[g][lane];
        pack_wide(block->q, batch->codes[lane], 32, 4, 8, 0);
    }
}

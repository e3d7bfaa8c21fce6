/* Fits of scales to groups of values: one group per lane, each sum in the order of the group's values.
 *
 * The same float32 operations in the same order as camelid/backends/common/quantizers, so both give the same
 * bits on every machine; products and sums are never fused. */
#pragma once
#include "codec_bits.h"
#include "vmath.h"

typedef struct { float low, high; } cam_whole;   /* integers low..high */
/* How a real number becomes the value of a code: an integer, a value of iq4, or 2 * k + 1 of an integer k. */
enum { TABLE_NONE, TABLE_IQ4, TABLE_ODD };
typedef struct { int table; cam_whole whole; } cam_nearest;

INLINE vi vf_finite(vf x) { return ((vi)x & 0x7FFFFFFF) < 0x7F800000; }

/* a / b; 0 where b is 0 or the quotient overflows. */
INLINE vf quotient(vf a, vf b) {
    vi zero = b == (vf){0};
    vf ratio = a / vf_pick(zero, vf_set(1.0f), b);
    return vf_pick(vf_finite(ratio) & ~zero, ratio, (vf){0});
}
INLINE vf inverse(vf x) { return quotient(vf_set(1.0f), x); }

/* The nearest integer of a range; ties to even. */
INLINE vf whole_of(cam_whole range, vf x) {
    return vi_float(vi_round(vf_min(vf_max(x, vf_set(range.low)), vf_set(range.high))));
}

/* results[i] of the nearest of n ascending values; a tie takes the lower. */
INLINE vf step_of(const int8_t *table, const int8_t *results, int n, vf x) {
    vf found = vf_set(results[0]);
    for (int i = 1; i < n; i++)
        found = vf_pick(x > vf_set((float)(table[i - 1] + table[i]) / 2), vf_set(results[i]), found);
    return found;
}
static const int8_t counted[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

INLINE vf nearest_e2m1(vf x) {
    vi size = (vi)step_of(e2m1_values, e2m1_values, 8, vf_abs(x));
    return (vf)(size | ((vi)x & INT32_MIN));
}
INLINE vf nearest_to(cam_nearest how, vf x) {
    if (how.table == TABLE_IQ4) return step_of(iq4_values, iq4_values, 16, x);
    if (how.table == TABLE_ODD) return 2.0f * whole_of(how.whole, (x - 1.0f) * 0.5f) + 1.0f;
    return whole_of(how.whole, x);
}

/* The first value of the largest magnitude, with its sign. */
INLINE vf largest_of(const vf *x, int n) {
    vf top = x[0];
    for (int i = 1; i < n; i++) top = vf_pick(vf_abs(x[i]) > vf_abs(top), x[i], top);
    return top;
}
INLINE vf sum_of(const vf *x, int n) {
    vf sum = x[0];
    for (int i = 1; i < n; i++) sum = sum + x[i];
    return sum;
}

/* A scale, and its curvature sum(w * q * q). */
typedef struct { vf scale, curvature; } cam_line;

INLINE void try_scale(const vf *x, const vf *w, int n, cam_nearest how, vf by, vf *xq, vf *qq) {
    vf new_xq = {0}, new_qq = {0};
    for (int i = 0; i < n; i++) {
        vf q = nearest_to(how, x[i] * by);
        new_xq = new_xq + w[i] * x[i] * q;
        new_qq = new_qq + w[i] * q * q;
    }
    vi better = new_xq * new_xq * *qq > *xq * *xq * new_qq;
    better |= (*qq == (vf){0}) & (new_qq > (vf){0});
    *xq = vf_pick(better, new_xq, *xq), *qq = vf_pick(better, new_qq, *qq);
}

/* The scale of the least sum(w * (x - s * q)^2) that the starts lead to: the codes that the largest value
 * gets. The best start is refined once. */
INLINE cam_line fit_scale(const vf *x, const vf *w, int n, cam_nearest how, const float *starts, int n_starts) {
    vf top = inverse(largest_of(x, n)), xq = {0}, qq = {0};
    for (int i = 0; i < n_starts; i++) try_scale(x, w, n, how, top * starts[i], &xq, &qq);
    try_scale(x, w, n, how, quotient(qq, xq), &xq, &qq);
    return (cam_line){quotient(xq, qq), qq};
}

/* A scale and a minimum, and their gain: the fall of the error below that of zeros. */
typedef struct { vf gain, scale, low; } cam_fit;

typedef struct {
    const vf *x, *w;
    int n, is_signed;      /* is_signed: minimums may be positive */
    float top;             /* largest code */
    vf sw, sx;             /* sums of weights, and of weighted values */
} cam_sums;

INLINE cam_fit solved(const cam_sums *sums, vf low, vf by) {
    vf sq = {0}, sqq = {0}, sxq = {0};
    for (int i = 0; i < sums->n; i++) {
        vf q = whole_of((cam_whole){0, sums->top}, (sums->x[i] - low) * by), wq = sums->w[i] * q;
        sq = sq + wq, sqq = sqq + wq * q, sxq = sxq + wq * sums->x[i];
    }
    const vf sw = sums->sw, sx = sums->sx, size = sw * sqq, spread = size - sq * sq;
    vf minimum = quotient(sqq * sx - sq * sxq, spread);
    vi is_free = spread > 0x1p-16f * size;
    if (!sums->is_signed) is_free &= minimum < (vf){0};
    minimum = vf_pick(is_free, minimum, (vf){0});
    vf scale = vf_pick(is_free, quotient(sw * sxq - sx * sq, spread), quotient(sxq, sqq));
    vf gain = scale * sxq + minimum * sx;
    return (cam_fit){vf_pick(scale > (vf){0}, gain, vf_set(-1.0f)), scale, minimum};
}
INLINE cam_fit better_of(cam_fit old, cam_fit new) {
    vi better = new.gain > old.gain;
    return (cam_fit){vf_pick(better, new.gain, old.gain), vf_pick(better, new.scale, old.scale),
                     vf_pick(better, new.low, old.low)};
}

/* Scale and minimum of the least sum(w * (x - (s * q + m))^2) that the starts lead to, over codes 0..top: the
 * largest value gets the code top + past, the given share of the smallest gets 0. */
INLINE cam_fit fit_affine(const vf *x, const vf *w, int n, float top, const float *past, int n_past,
                          const float *shares, int n_shares, int is_signed) {
    vf low = x[0], high = x[0], wx = w[0] * x[0];
    for (int i = 1; i < n; i++) {
        low = vf_min(low, x[i]), high = vf_max(high, x[i]);
        wx = wx + w[i] * x[i];
    }
    cam_sums sums = {x, w, n, is_signed, top, sum_of(w, n), wx};
    vf constant = quotient(wx, sums.sw);
    if (!is_signed) low = vf_min(low, (vf){0}), constant = vf_min(constant, (vf){0});
    cam_fit best = {constant * wx, {0}, constant};
    for (int i = 0; i < n_shares; i++) {
        vf cut = low * shares[i], by = inverse(vf_max(high - cut, (vf){0}));
        for (int j = 0; j < n_past; j++) best = better_of(best, solved(&sums, cut, by * (top + past[j])));
    }
    return better_of(best, solved(&sums, best.low, inverse(best.scale)));
}

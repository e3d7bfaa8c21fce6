/* Loads and stores of partial vectors at the end of a row, which access no memory past the row. A float
 * passes through the same arithmetic in a whole and in a partial vector. */
#pragma once
#include "simd.h"

static inline vf vf_get_some(const float *p, uint32_t n) {
    vf v = {0};
    for (uint32_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}
static inline void vf_put_some(float *p, uint32_t n, vf v) {
    for (uint32_t i = 0; i < n; i++) p[i] = v[i];
}

/* Loads min(left, LANES) floats; the other lanes are 0. */
INLINE vf vf_get(const float *p, uint32_t left) { return left >= LANES ? vf_load(p) : vf_get_some(p, left); }
INLINE void vf_put(float *p, uint32_t left, vf v) {
    if (left >= LANES) vf_store(p, v);
    else vf_put_some(p, left, v);
}

/* Mask with all ones in the first `left` lanes. */
INLINE vi lanes_left(uint32_t left) {
    vi lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return lane < vi_set(left < LANES ? (int32_t)left : LANES);
}
/* First `left` lanes of v; the other lanes are 0. */
INLINE vf vf_first(vf v, uint32_t left) { return left >= LANES ? v : (vf)((vi)v & lanes_left(left)); }

/* Sums over a row: vector i is added to accumulator i % SUMS, so that additions are independent. */
enum { SUMS = 4 };
INLINE float sums_total(const vf *sums) { return vf_sum((sums[0] + sums[1]) + (sums[2] + sums[3])); }

#define EACH_SUMMED(i, k, n)                             \
    for (uint32_t i##_of_4 = 0; i##_of_4 < (n); i##_of_4 += SUMS * LANES) \
        for (uint32_t k = 0, i = i##_of_4; k < SUMS && i < (n); k++, i += LANES)

static inline float sum_floats(const float *x, uint32_t n) {
    vf sums[SUMS] = {0};
    EACH_SUMMED(i, k, n) sums[k] += vf_get(x + i, n - i);
    return sums_total(sums);
}

/* Sum of (x - mean)^2. */
static inline float sum_squares(const float *x, uint32_t n, float mean) {
    vf sums[SUMS] = {0};
    EACH_SUMMED(i, k, n) {
        vf d = vf_first(vf_get(x + i, n - i) - vf_set(mean), n - i);
        sums[k] = vf_fma(d, d, sums[k]);
    }
    return sums_total(sums);
}

/* math: elementary functions with the same bits on every device. Coefficients are those of the processor's kernels
 * (cpu/c/vmath.h): minimax polynomials, exp and log within 2 ulp. */
#pragma once
#include "gpu.h"

#define LOWEST (-3.402823466e38f)  /* of finite floats */

DEVICE float infinity_() { return as_float(0x7F800000u); }
DEVICE float power2(int n) { return as_float((u32)(n + 127) << 23); }  /* 2^n for -126 <= n <= 127 */

/* exp(x) = (1 + the result) * 2^n, with the result from about -0.3 to 0.42. */
DEVICE float exp_parts(float x, int *n) {
    const float whole = rint_(x * 1.44269504f);
    const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 0.00138200796f;
    p = fma_(p, r, 0.00836868398f);
    p = fma_(p, r, 0.0416682735f);
    p = fma_(p, r, 0.166665211f);
    p = fma_(p, r, 0.49999994f);
    *n = (int)whole;
    return fma_(r * r, p, r);
}

DEVICE float exp_(float x) {
    if (is_nan(x)) return x;
    int n;
    const float p = exp_parts(max_(min_(x, 89.0f), -104.0f), &n) + 1.0f;
    const int half = n >> 1;  /* 2^n in two factors: it may be infinite or subnormal */
    return p * power2(half) * power2(n - half);
}

/* exp(x) - 1 for x <= 0, in all digits also near 0. */
DEVICE float expm1_negative(float x) {
    if (is_nan(x)) return x;
    int n;
    const float part = exp_parts(max_(x, -40.0f), &n), power = power2(n);
    return fma_(power, part, power - 1.0f);
}

/* log(1 + f) + whole * log 2, with 1 + f from sqrt(1/2) to sqrt(2). */
DEVICE float log_parts(float f, float whole) {
    float p = -0.0763721392f;
    p = fma_(p, f, 0.1276429f);
    p = fma_(p, f, -0.131602794f);
    p = fma_(p, f, 0.142013282f);
    p = fma_(p, f, -0.166233137f);
    p = fma_(p, f, 0.20001249f);
    p = fma_(p, f, -0.250008225f);
    p = fma_(p, f, 0.333333313f);
    const float square = f * f;
    const float tail = fma_(square * f, p, whole * -2.12194440e-4f) - square * 0.5f;
    return whole * 0.693359375f + (f + tail);
}

DEVICE float log_(float x) {
    const bool is_tiny = x < 1.17549435e-38f;
    const u32 bits = as_bits(is_tiny ? x * 8388608.0f : x) - 0x3F3504F3u;  /* the exponent goes up at sqrt(1/2) */
    const int e = (int)bits >> 23;
    const float f = as_float((bits & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
    if (x == 0.0f) return -infinity_();
    if (is_nan(x) || x < 0.0f) return as_float(0x7FC00000u);
    return x == infinity_() ? x : log_parts(f, (float)(e - (is_tiny ? 23 : 0)));
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). */
DEVICE float softplus_(float x) {
    const float small = exp_(-abs_(x));
    const bool is_upper = small > 0.41421356f;  /* then 1 + small is halved, exactly */
    const float f = is_upper ? small * 0.5f - 0.5f : small;
    return max_(x, 0.0f) + log_parts(f, is_upper ? 1.0f : 0.0f);
}

/* 1 / (1 + exp(-x)), by exp(-|x|), which never overflows. */
DEVICE float sigmoid_(float x) {
    const float small = exp_(-abs_(x));
    return (x < 0.0f ? small : 1.0f) / (small + 1.0f);
}

DEVICE float tanh_(float x) {
    const float a = min_(abs_(x), 20.0f), s = a * a;  /* tanh(20) is 1 in float32 */
    const float tail = fma_(-s, fma_(-s, fma_(-s, 62.0f / 2835.0f, 17.0f / 315.0f), 2.0f / 15.0f), 1.0f / 3.0f);
    const float t = exp_(-2.0f * a);
    const float size = a < 0.25f ? a * fma_(-s, tail, 1.0f) : (1.0f - t) / (1.0f + t);
    return is_nan(x) ? x : x < 0.0f ? -size : size;
}

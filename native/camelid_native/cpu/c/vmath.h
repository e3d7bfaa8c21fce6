/* Elementary functions of vectors, and activation functions.
 *
 * No lane branches and no lane depends on its neighbours: a scalar is lane 0 of a vector of copies.
 * Polynomials are minimax fits (Lawson's reweighted least squares on Chebyshev points) of the functions named
 * beside them; coefficients are rounded to float32 one after the other, and the rest refitted each time.
 * Errors against float64, with and without FMA: exp, log and softplus within 2 ulp, tanh and erf within 1e-6
 * of the value. NaN stays NaN; infinities, subnormals and zeros are handled. */
#pragma once
#include "simd.h"
#include "words.h"

#define VF(x) vf_set(x)

/* c[0] + c[1] * x + ... + c[n - 1] * x^(n - 1), by Horner. */
INLINE vf vf_poly(vf x, const float *c, int n) {
    vf sum = VF(c[n - 1]);
    for (int i = n - 2; i >= 0; i--) sum = vf_fma(sum, x, VF(c[i]));
    return sum;
}
INLINE vf vf_abs(vf x) { return (vf)((vi)x & 0x7FFFFFFF); }
INLINE vf vf_with_sign(vf magnitude, vf sign) { return (vf)((vi)magnitude | ((vi)sign & INT32_MIN)); }
INLINE vf vf_keep_nan(vf x, vf y) { return vf_pick(x != x, x, y); }

/* 2^n for -126 <= n <= 127. */
INLINE vf vf_power2(vi n) { return (vf)((n + 127) << 23); }

/* exp(x) = 2^n * (1 + returned), with |x - n * log 2| <= log(2) / 2. Polynomial: (exp(r) - 1 - r) / r^2. */
INLINE vf vf_exp_parts(vf x, vi *n) {
    static const float c[] = {0.49999994f, 0.166665211f, 0.0416682735f, 0.00836868398f, 0.00138200796f};
    *n = vi_round(x * 1.44269504f);
    vf whole = vi_float(*n);
    /* log 2 in two parts; the first has 9 bits, so that its product with n is exact. */
    vf r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    return vf_fma(r * r, vf_poly(r, c, 5), r);
}

INLINE vf vf_exp(vf x) {
    vi n;
    vf part = vf_exp_parts(vf_max(vf_min(x, VF(89.0f)), VF(-104.0f)), &n);
    /* 2^n in two factors: it may be infinite or subnormal, and is then rounded once. */
    vi half = n >> 1;
    return vf_keep_nan(x, (part + 1.0f) * vf_power2(half) * vf_power2(n - half));
}

/* exp(x) for x <= 0: a softmax weight, where the largest weight is 1. Weights below 2^-64 become 0: they
 * would not change the sum of weights, and subnormal products cost some machines a hundred cycles each. */
INLINE vf vf_exp_weight(vf x) {
    vi n;
    vf part = vf_exp_parts(vf_max(x, VF(-45.0f)), &n);
    const float log_least = -44.3614196f;   /* of 2^-64 */
    vf weight = (part + 1.0f) * vf_power2(n);
    return vf_keep_nan(x, vf_pick(x < log_least, VF(0.0f), weight));
}

/* exp(x) - 1 for x <= 0, as accurate near 0 as elsewhere. */
INLINE vf vf_expm1_negative(vf x) {
    vi n;
    vf part = vf_exp_parts(vf_max(x, VF(-40.0f)), &n);
    vf power = vf_power2(n);
    return vf_keep_nan(x, power * part + (power - 1.0f));
}

/* log(1 + f) + e * log 2, 1 + f from sqrt(1/2) to sqrt(2). Polynomial: (log(1 + f) - f + f^2 / 2) / f^3. */
INLINE vf vf_log_parts(vf f, vf e) {
    static const float c[] = {0.333333313f, -0.250008225f, 0.20001249f,  -0.166233137f,
                              0.142013282f, -0.131602794f, 0.1276429f, -0.0763721392f};
    vf square = f * f;
    vf tail = vf_fma(square * f, vf_poly(f, c, 8), e * -2.12194440e-4f) - square * 0.5f;
    return e * 0.693359375f + (f + tail);
}

INLINE vf vf_log(vf x) {
    vi tiny = x < 0x1p-126f;
    vu bits = (vu)vf_pick(tiny, x * 0x1p23f, x);
    vi shifted = (vi)(bits - 0x3F3504F3);   /* sqrt(1/2): the exponent goes up from there */
    vi e = shifted >> 23;
    vf f = (vf)((shifted & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
    vf y = vf_log_parts(f, vi_float(e - (tiny & 23)));
    y = vf_pick(x == 0.0f, VF(-__builtin_inff()), y);
    y = vf_pick(x == __builtin_inff(), x, y);
    return vf_pick(x >= 0.0f, y, VF(__builtin_nanf("")));
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). */
INLINE vf vf_softplus(vf x) {
    vf small = vf_exp(-vf_abs(x));
    vi upper = small > 0.41421356f;         /* then 1 + small is halved, exactly */
    vf f = vf_pick(upper, small * 0.5f - 0.5f, small);
    return vf_keep_nan(x, vf_max(VF(0.0f), x) + vf_log_parts(f, vi_float(-upper)));
}

/* tanh|x| = (1 - exp(-2|x|)) / (1 + exp(-2|x|)). */
INLINE vf vf_tanh(vf x) {
    vf less = vf_expm1_negative(vf_abs(x) * -2.0f);
    return vf_with_sign(-less / (less + 2.0f), x);
}

/* -log(erfc(a)) for a >= 0. Polynomial: -log(erfc(a)) / a for a <= 4. Beyond 4, where erfc is below half an
 * ulp of 1, the exponent grows linearly, so that erfc decays to 0. */
INLINE vf vf_erfc_exponent(vf a) {
    static const float c[] = {1.12837934f,     0.636606991f,   0.102902137f,
                              -0.0195947867f,  0.000568316842f, 0.00104191084f,
                              -0.000344756903f, 4.99074049e-05f, -2.87166313e-06f};
    return a * vf_poly(vf_min(a, VF(4.0f)), c, 9);
}
INLINE vf vf_erf(vf x) { return vf_with_sign(-vf_expm1_negative(-vf_erfc_exponent(vf_abs(x))), x); }

/* 1 / (1 + exp(-x)), by exp(-|x|), which never overflows. */
INLINE vf vf_sigmoid(vf x) {
    vf small = vf_exp(-vf_abs(x));
    return vf_pick(x < 0.0f, small, VF(1.0f)) / (small + 1.0f);
}

INLINE vf vf_silu(vf x) { return x * vf_sigmoid(x); }
/* GELU, tanh form (Hendrycks and Gimpel, arXiv 1606.08415): (1 + tanh(u)) / 2 = sigmoid(2 * u). */
INLINE vf vf_gelu(vf x) { return x * vf_sigmoid(x * 1.59576912f * (x * x * 0.044715f + 1.0f)); }
/* GELU, exact form: x * Phi(x), with Phi the normal distribution function, whose tail is erfc(|x| / sqrt(2))
 * / 2. */
INLINE vf vf_gelu_erf(vf x) {
    vf tail = vf_exp(-vf_erfc_exponent(vf_abs(x) * 0.707106781f)) * 0.5f;
    return x * vf_pick(x < 0.0f, tail, 1.0f - tail);
}
INLINE vf vf_relu(vf x) { return vf_max(VF(0.0f), x); }  /* this argument order keeps NaN */

/* Activation by word; the word is the same for all lanes, so the branch is always predicted. */
static inline vf vf_act(uint32_t word, vf x) {
    switch (word) {
    case WORD_silu: return vf_silu(x);
    case WORD_gelu: return vf_gelu(x);
    case WORD_gelu_erf: return vf_gelu_erf(x);
    case WORD_relu: return vf_relu(x);
    case WORD_relu2: return vf_relu(x) * vf_relu(x);
    case WORD_sigmoid: return vf_sigmoid(x);
    case WORD_tanh: return vf_tanh(x);
    default: return x;
    }
}

/* Gate of gpt-oss: gate clamped to at most 7, up to [-7, 7]; gate * sigmoid(1.702 * gate) * (up + 1). */
INLINE vf vf_swiglu_oai(vf gate, vf up) {
    vf low = vf_min(VF(7.0f), gate), held = vf_max(VF(-7.0f), vf_min(VF(7.0f), up));
    return low * vf_sigmoid(low * 1.702f) * (held + 1.0f);
}

/* act(gate) * up, or swiglu_oai, whose `up` is not a plain factor. */
static inline vf vf_gate(uint32_t word, vf gate, vf up) {
    return word == WORD_swiglu_oai ? vf_swiglu_oai(gate, up) : vf_act(word, gate) * up;
}

/* Scalar forms, with the same bits as in a vector. */
INLINE float f_exp(float x) { return vf_exp(VF(x))[0]; }
INLINE float f_log(float x) { return vf_log(VF(x))[0]; }
INLINE float f_tanh(float x) { return vf_tanh(VF(x))[0]; }
INLINE float f_sigmoid(float x) { return vf_sigmoid(VF(x))[0]; }
INLINE float f_softplus(float x) { return vf_softplus(VF(x))[0]; }

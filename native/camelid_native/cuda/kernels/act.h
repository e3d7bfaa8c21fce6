/* act: activations and gated units, by number. */
#pragma once
#include "math.h"

enum { ACT_NONE, ACT_SILU, ACT_GELU, ACT_GELU_ERF, ACT_RELU, ACT_RELU2, ACT_SIGMOID, ACT_TANH, GATE_SWIGLU_OAI };

DEVICE float sigmoid_(float v) { return 1.0f / (1.0f + exp_(-v)); }
DEVICE float clamped(float v, float low, float high) { return is_nan(v) ? v : max_(min_(v, high), low); }

/* Tanh form (Hendrycks and Gimpel, arXiv 1606.08415). The clamp keeps the cube finite. */
DEVICE float gelu_(float v) {
    const float u = clamped(v, -20.0f, 20.0f);
    return 0.5f * v * (1.0f + tanh_(0.79788456f * (u + 0.044715f * u * u * u)));
}
/* v * (1 + erf(v / sqrt(2))) / 2; absolute error of erf at most 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
DEVICE float gelu_erf_(float v) {
    const float x = min_(abs_(v) * 0.70710678f, 8.0f), t = 1.0f / (1.0f + 0.3275911f * x);
    float p = fma_(t, 1.061405429f, -1.453152027f);
    p = fma_(t, p, 1.421413741f);
    p = fma_(t, p, -0.284496736f);
    const float erfc = t * fma_(t, p, 0.254829592f) * exp_(-x * x);
    return 0.5f * v * (v < 0.0f ? erfc : 2.0f - erfc);
}
DEVICE float activated(int kind, float v) {
    const float positive = is_nan(v) ? v : max_(v, 0.0f);
    switch (kind) {
        case ACT_SILU: return v / (1.0f + exp_(-v));
        case ACT_GELU: return gelu_(v);
        case ACT_GELU_ERF: return gelu_erf_(v);
        case ACT_RELU: return positive;
        case ACT_RELU2: return positive * positive;
        case ACT_SIGMOID: return sigmoid_(v);
        default: return tanh_(v);
    }
}
/* Gated unit of gpt-oss: gate at most 7, up within -7..7, sigmoid of slope 1.702, factor up + 1. */
DEVICE float swiglu_oai(float gate, float up) {
    const float g = is_nan(gate) ? gate : min_(gate, 7.0f);
    return g * sigmoid_(1.702f * g) * (clamped(up, -7.0f, 7.0f) + 1.0f);
}
DEVICE float gated(int kind, float gate, float up) {
    return kind == GATE_SWIGLU_OAI ? swiglu_oai(gate, up) : activated(kind, gate) * up;
}

/* act: activations and gates, by number. NaN stays NaN. Forms and coefficients are those of the processor's kernels
 * (cpu/c/vmath.h). */
#pragma once
#include "math.h"

enum { ACT_NONE, ACT_SILU, ACT_GELU, ACT_GELU_ERF, ACT_RELU, ACT_RELU2, ACT_SIGMOID, ACT_TANH, GATE_SWIGLU_OAI };

/* -log(erfc(a)) for a >= 0, by a minimax polynomial of -log(erfc(a)) / a up to 4, where erfc is below half an ulp of
 * 1. Beyond, the exponent grows linearly. */
DEVICE float erfc_exponent(float a) {
    const float v = min_(a, 4.0f);
    float p = -2.87166313e-06f;
    p = fma_(p, v, 4.99074049e-05f);
    p = fma_(p, v, -0.000344756903f);
    p = fma_(p, v, 0.00104191084f);
    p = fma_(p, v, 0.000568316842f);
    p = fma_(p, v, -0.0195947867f);
    p = fma_(p, v, 0.102902137f);
    p = fma_(p, v, 0.636606991f);
    p = fma_(p, v, 1.12837934f);
    return a * p;
}

/* GELU, tanh form (Hendrycks and Gimpel, arXiv 1606.08415): (1 + tanh(u)) / 2 = sigmoid(2 * u). */
DEVICE float gelu_tanh(float v) { return v * sigmoid_(v * 1.59576912f * (v * v * 0.044715f + 1.0f)); }

/* GELU, exact form: v times the normal distribution function, whose tail is erfc(|v| / sqrt(2)) / 2. */
DEVICE float gelu_erf(float v) {
    const float tail = exp_(-erfc_exponent(abs_(v) * 0.707106781f)) * 0.5f;
    return v * (v < 0.0f ? tail : 1.0f - tail);
}

DEVICE float relu(float v) { return v < 0.0f ? 0.0f : v; }

DEVICE float activated(int kind, float v) {
    switch (kind) {
    case ACT_SILU: return v * sigmoid_(v);
    case ACT_GELU: return gelu_tanh(v);
    case ACT_GELU_ERF: return gelu_erf(v);
    case ACT_RELU: return relu(v);
    case ACT_RELU2: return relu(v) * relu(v);
    case ACT_SIGMOID: return sigmoid_(v);
    case ACT_TANH: return tanh_(v);
    default: return v;
    }
}

/* Gate of gpt-oss: gate at most 7, up from -7 to 7; gate * sigmoid(1.702 * gate) * (up + 1). */
DEVICE float swiglu_oai(float gate, float up) {
    const float low = gate > 7.0f ? 7.0f : gate, bounded = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return low * sigmoid_(low * 1.702f) * (bounded + 1.0f);
}

/* act(gate) * up, or a gate that also changes up. */
DEVICE float gated(int kind, float gate, float up) {
    return kind == GATE_SWIGLU_OAI ? swiglu_oai(gate, up) : activated(kind, gate) * up;
}

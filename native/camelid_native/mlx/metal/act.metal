// act: gated(gate, up) by the name of an activation. NaN stays NaN. Forms are those of cuda/kernels/act.h.
inline float act_silu(float v) { return v * sigmoid_of(v); }
inline float act_sigmoid(float v) { return sigmoid_of(v); }
inline float act_tanh(float v) { return tanh_of(v); }
inline float act_relu(float v) { return v < 0.0f ? 0.0f : v; }
inline float act_relu2(float v) { return act_relu(v) * act_relu(v); }

// GELU, tanh form (Hendrycks and Gimpel, arXiv 1606.08415): (1 + tanh(u)) / 2 = sigmoid(2 * u).
inline float act_gelu(float v) { return v * sigmoid_of(v * 1.59576912f * (v * v * 0.044715f + 1.0f)); }

// -log(erfc(a)) for a >= 0, by a minimax polynomial of -log(erfc(a)) / a up to 4.
inline float erfc_exponent(float a) {
  float v = min(a, 4.0f), p = fma(-2.87166313e-06f, v, 4.99074049e-05f);
  p = fma(p, v, -0.000344756903f);
  p = fma(p, v, 0.00104191084f);
  p = fma(p, v, 0.000568316842f);
  p = fma(p, v, -0.0195947867f);
  p = fma(p, v, 0.102902137f);
  p = fma(p, v, 0.636606991f);
  return a * fma(p, v, 1.12837934f);
}

// GELU, exact form: v times the normal distribution function, whose tail is erfc(|v| / sqrt(2)) / 2.
inline float act_gelu_erf(float v) {
  float tail = exp_of(-erfc_exponent(abs(v) * 0.707106781f)) * 0.5f;
  return v * (v < 0.0f ? tail : 1.0f - tail);
}

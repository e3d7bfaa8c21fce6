// math: elementary functions with the same bits on every device, as of the other backends (cuda/kernels/math.h):
// minimax polynomials, exp and log within 2 ulp.
constant constexpr float LOWEST = -3.402823466e38f;  // of finite floats

inline float infinity() { return as_type<float>(0x7F800000u); }
inline float power2(int n) { return as_type<float>(uint(n + 127) << 23); }  // 2^n for -126 <= n <= 127

inline float exp_of(float x) {
  if (isnan(x)) return x;
  float v = max(min(x, 89.0f), -104.0f), whole = rint(v * 1.44269504f);
  float r = (v - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = fma(0.00138200796f, r, 0.00836868398f);
  p = fma(p, r, 0.0416682735f);
  p = fma(p, r, 0.166665211f);
  p = fma(p, r, 0.49999994f);
  p = fma(r * r, p, r) + 1.0f;
  int n = int(whole), half_n = n >> 1;  // 2^n in two factors: it may be infinite or subnormal
  return p * power2(half_n) * power2(n - half_n);
}

// log(1 + f) + whole * log 2, with 1 + f from sqrt(1/2) to sqrt(2).
inline float log_parts(float f, float whole) {
  float p = fma(-0.0763721392f, f, 0.1276429f);
  p = fma(p, f, -0.131602794f);
  p = fma(p, f, 0.142013282f);
  p = fma(p, f, -0.166233137f);
  p = fma(p, f, 0.20001249f);
  p = fma(p, f, -0.250008225f);
  p = fma(p, f, 0.333333313f);
  float square = f * f;
  float tail = fma(square * f, p, whole * -2.12194440e-4f) - square * 0.5f;
  return whole * 0.693359375f + (f + tail);
}

inline float log_of(float x) {
  bool is_tiny = x < 1.17549435e-38f;
  uint bits = as_type<uint>(is_tiny ? x * 8388608.0f : x) - 0x3F3504F3u;  // the exponent goes up at sqrt(1/2)
  int e = int(bits) >> 23;
  float f = as_type<float>((bits & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
  if (x == 0.0f) return -infinity();
  if (isnan(x) || x < 0.0f) return as_type<float>(0x7FC00000u);
  return x == infinity() ? x : log_parts(f, float(e - (is_tiny ? 23 : 0)));
}

// 1 / (1 + exp(-x)), by exp(-|x|), which never overflows.
inline float sigmoid_of(float x) {
  float small = exp_of(-abs(x));
  return (x < 0.0f ? small : 1.0f) / (small + 1.0f);
}

inline float tanh_of(float x) {
  float a = min(abs(x), 20.0f), s = a * a;  // tanh(20) is 1 in float32
  float tail = fma(-s, fma(-s, fma(-s, 62.0f / 2835.0f, 17.0f / 315.0f), 2.0f / 15.0f), 1.0f / 3.0f);
  float t = exp_of(-2.0f * a), size = a < 0.25f ? a * fma(-s, tail, 1.0f) : (1.0f - t) / (1.0f + t);
  return isnan(x) ? x : x < 0.0f ? -size : size;
}

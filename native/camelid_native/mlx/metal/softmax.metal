// softmax: sums of consecutive keys, which are joined in order.
struct Softmax { float top, sum; };  // highest score, and the sum of weights exp(score - top)
struct Fades { float before, part; };  // factors that bring two sums to one highest score

inline float higher(float a, float b) { return b > a ? b : a; }  // a NaN in b is not the highest; its weight is NaN

inline Fades fades_of(Softmax a, Softmax b) {
  float top = higher(a.top, b.top);
  return {exp_of(a.top - top), exp_of(b.top - top)};
}
inline float joined(float a, float b, Fades by) { return fma(b, by.part, a * by.before); }
inline Softmax joined(Softmax a, Softmax b, Fades by) { return {higher(a.top, b.top), joined(a.sum, b.sum, by)}; }

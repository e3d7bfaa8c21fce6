// finish: what becomes of the sums of an output. y = added + SCALE * gated(sums / rms + bias).
//
// Constants: HAS_BIAS, HAS_ADDED, IS_NORMED, EPS, SCALE.
struct Finish { const device float *bias, *second_bias, *added, *gain; };

// `bias` is the place of the output among the biases, `at` its place in y.
inline float finished(Finish f, float gate, float up, uint bias, ulong at) {
  if (HAS_BIAS) gate = gate + f.bias[bias], up = PARTS == 2 ? up + f.second_bias[bias] : up;
  float v = gated(gate, up);
  return HAS_ADDED ? f.added[at] + SCALE * v : v;
}

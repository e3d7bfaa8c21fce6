// rms: the reciprocal root mean square of a deferred norm: x has K values, then the sum of squares of each quad.
inline float inverse_rms(const device float *x, uint lane) {
  float sum = 0.0f;
  for (uint i = lane; i < K / 4; i += LANES) sum = sum + x[K + i];
  return 1.0f / precise::sqrt(lane_sum(sum) / float(K) + EPS);
}

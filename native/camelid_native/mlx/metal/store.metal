// store: writes the outputs of a simdgroup; lane t has row t. Rows that do not live become zeros.
//
// With IS_DEFERRED, z gets a deferred norm of y.
template <uint M>
inline void store(Finish f, thread float (&sums)[WEIGHT_ROWS][M], const device float *x, uint output, uint first_row,
                  uint live, uint lane, device float *y, device float *z) {
  for (uint t = 0; t < M; t++) {
    float scale = 1.0f, squares = 0.0f;
    if (IS_NORMED && t < live) scale = inverse_rms(x + t * X_COLS, lane);
    if (lane != t || first_row + t >= ROWS) continue;
    for (uint i = 0; i < OUTPUTS && output + i < N; i++) {
      ulong row = first_row + t, at = row * N + output + i;
      float up = sums[(PARTS - 1) * OUTPUTS + i][t] * scale;
      float v = t < live ? finished(f, sums[i][t] * scale, up, output + i, at) : 0.0f;
      y[at] = v;
      if (IS_DEFERRED) defer(z + row * (N + N / 4), output + i, v, f.gain[output + i], squares);
    }
  }
}

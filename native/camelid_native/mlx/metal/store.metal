// store: writes the outputs of a simdgroup; lane t has row t. Rows that do not live become zeros.
template <uint M>
inline void store(Finish f, thread float (&sums)[WEIGHT_ROWS][M], const device float *x, uint output, uint first_row,
                  uint live, uint lane, device float *y) {
  for (uint t = 0; t < M; t++) {
    float scale = 1.0f;
    if (IS_NORMED && t < live) scale = inverse_rms(x + t * X_COLS, lane);
    if (lane != t || first_row + t >= ROWS) continue;
    for (uint i = 0; i < OUTPUTS; i++) {
      ulong at = ulong(first_row + t) * N + output + i;
      if (output + i < N)
        y[at] = t < live ? finished(f, sums[i][t] * scale, sums[(PARTS - 1) * OUTPUTS + i][t] * scale, output + i, at) : 0.0f;
    }
  }
}

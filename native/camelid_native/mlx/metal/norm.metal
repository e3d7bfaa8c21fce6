  // norm: normalizes each group of SIZE columns, then * gain + bias. KIND 0, rms: x / sqrt(mean(x^2) + EPS); 1, layer:
  // (x - mean) / sqrt(var + EPS); 2, l2: x / max(|x|, EPS). x is x + SCALE * r if HAS_R, and is kept.  grid: (groups, rows).
  threadgroup float shared[SIMDS];
  uint i = thread_index_in_threadgroup, group = threadgroup_position_in_grid.x, t = threadgroup_position_in_grid.y;
  ulong at = ulong(t) * COLS + group * SIZE;
  bool is_live = t < count[COUNT_AT];
  float sum = 0.0f, squares = 0.0f, mean = 0.0f;
  for (uint c = i; c < SIZE; c += THREADS) {
    float v = !is_live ? 0.0f : HAS_R ? fma(SCALE, r[at + c], x[at + c]) : x[at + c];
    if (HAS_R) KEPT[at + c] = v;
    sum = sum + v;
  }
  if (KIND == 1) mean = block_sum(sum, shared, i) / float(SIZE);
  for (uint c = i; c < SIZE && is_live; c += THREADS) {
    float v = HAS_R ? fma(SCALE, r[at + c], x[at + c]) : x[at + c];
    squares = fma(v - mean, v - mean, squares);
  }
  float total = block_sum(squares, shared, i), scale = 1.0f / precise::sqrt(total / float(SIZE) + EPS);
  if (KIND == 2) scale = isnan(total) ? total : 1.0f / max(precise::sqrt(total), EPS);
  for (uint c = i; c < SIZE; c += THREADS) {
    float v = !is_live ? 0.0f : HAS_R ? fma(SCALE, r[at + c], x[at + c]) : x[at + c];
    float out = (v - mean) * scale;
    if (HAS_GAIN) out = out * gain[group * GAIN_STEP + c];
    if (HAS_BIAS) out = out + bias[c];
    y[at + c] = is_live ? out : 0.0f;
  }

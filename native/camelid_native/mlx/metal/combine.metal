  // combine: y = the sum over slots of probs[slot] * x[slot], in order.  grid: (columns, rows).
  uint c = threadgroup_position_in_grid.x * LANES + thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  if (c >= N) return;
  float sum = 0.0f;
  for (uint slot = 0; slot < SLOTS && t < count[COUNT_AT]; slot++) {
    ulong pair = ulong(t) * SLOTS + slot;
    sum = fma(probs[pair], x[pair * N + c], sum);
  }
  y[ulong(t) * N + c] = sum;

  // defer_norm: the deferred norm of y, with the bits of a sum's own.  grid: (quads, rows).
  uint quad = threadgroup_position_in_grid.x * LANES + thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  if (quad >= N / 4) return;
  device float *own = z + ulong(t) * (N + N / 4);
  float squares = 0.0f;
  for (uint c = 4 * quad; c < 4 * quad + 4; c++)
    defer(own, c, t < count[COUNT_AT] ? y[ulong(t) * N + c] : 0.0f, gain[c], squares);

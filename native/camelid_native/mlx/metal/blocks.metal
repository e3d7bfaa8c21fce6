  // blocks: rows of values as the KV cache stores them.  grid: (blocks of a row, rows).
  uint lane = thread_index_in_simdgroup, number = threadgroup_position_in_grid.x, t = threadgroup_position_in_grid.y;
  float v = t < count[COUNT_AT] ? x[ulong(t) * COLS + number * LANES + lane] : 0.0f;
  put(y + (ulong(t) * (COLS / LANES) + number) * BLOCK_BYTES, v, lane);

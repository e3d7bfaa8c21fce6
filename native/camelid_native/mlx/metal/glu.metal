  // glu: y = act(gate) * up, which are columns of buffers.  grid: (columns, rows).
  uint c = threadgroup_position_in_grid.x * LANES + thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  if (c >= N) return;
  ulong row = t;
  bool is_live = t < count[COUNT_AT];
  y[row * N + c] = is_live ? gated(gate[row * GATE_COLS + GATE_AT + c], up[row * UP_COLS + UP_AT + c]) : 0.0f;

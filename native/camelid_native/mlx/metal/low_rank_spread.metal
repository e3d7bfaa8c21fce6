  // low_rank_spread: y = added + SCALE * sum over i of u[i] * B[i] for the columns from FIRST on of rows with an adapter;
  // other columns and rows are copied.  grid: (columns, rows).
  uint c = threadgroup_position_in_grid.x * LANES + thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  if (c >= COLS) return;
  bool is_live = t < step[COUNT_AT], is_own = c >= FIRST && c < FIRST + SLOTS * N_OUT;
  ulong at = ulong(t) * COLS + c;
  float v = is_live ? added[at] : 0.0f;
  uint slot = is_live && is_own ? slot_of(step, t) : 0;
  if (slot != 0) {
    uint own = c - FIRST, pair = t * SLOTS + own / N_OUT;
    Term term = term_of(held, slot, ids, pair);
    float sum = 0.0f;
    for (uint i = 0; i < term.rank; i++) sum = fma(u[pair * MOST + i], term.b[i * N_OUT + own % N_OUT], sum);
    v = fma(SCALE, sum, v);
  }
  y[at] = v;

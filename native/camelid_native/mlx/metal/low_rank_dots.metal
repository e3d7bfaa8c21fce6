  // low_rank_dots: u = scales * (A @ x), 0 for rows without an adapter.  grid: (rows of A, pairs of a row and a slot of
  // experts), a simdgroup per row of A. With IS_NORMED, x is a deferred norm.
  uint i = threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup;
  uint lane = thread_index_in_simdgroup, pair = threadgroup_position_in_grid.y, t = pair / SLOTS;
  if (i >= MOST) return;
  uint slot = t < step[COUNT_AT] ? slot_of(step, t) : 0;
  const device float *own = x + ulong(t) * X_COLS + pair % SLOTS % VECTORS * N_IN;
  float dot = 0.0f, scale = 0.0f;
  if (slot != 0) {
    Term term = term_of(held, slot, ids, pair);
    for (uint c = lane; c < N_IN && i < term.rank; c += LANES) dot = fma(term.a[i * N_IN + c], own[c], dot);
    scale = i < term.rank ? term.scales[i] : 0.0f;
    if (IS_NORMED) scale = scale * inverse_rms(own, lane);
  }
  dot = lane_sum(dot);
  if (lane == 0) u[pair * MOST + i] = scale * dot;

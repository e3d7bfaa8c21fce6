  // norm_rope: of each head of queries and keys the RMS norm (IS_NORMED) and the rotation; columns from TURNED on are
  // copied.  grid: (heads, rows), a simdgroup each.
  threadgroup float head[HEAD_DIM];
  uint lane = thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  uint column = threadgroup_position_in_grid.x * HEAD_DIM;
  bool is_live = t < step[0], is_turned = column < TURNED;
  const device float *from = x + ulong(t) * COLS + column;
  device float *to = y + ulong(t) * COLS + column;
  uint n = min(HEAD_DIM, COLS - column);
  float squares = 0.0f;
  for (uint c = lane; c < n; c += LANES) {
    head[c] = is_live ? from[c] : 0.0f;
    squares = fma(head[c], head[c], squares);
  }
  float scale = 1.0f / precise::sqrt(lane_sum(squares) / float(HEAD_DIM) + EPS);
  for (uint c = lane; c < n && IS_NORMED && is_turned; c += LANES)
    head[c] = head[c] * scale * (column < TURNED - K_COLS ? q_gain[c] : k_gain[c]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  uint position = is_live ? row_at(step, t).position : 0;
  for (uint pair = lane; pair < PAIRS && is_turned; pair += LANES) {
    uint at = OFFSET + pair * PITCH;
    float2 values = turned(float2(head[at], head[at + NEXT]), angle(fine, coarse, position, pair));
    head[at] = values.x, head[at + NEXT] = values.y;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint c = lane; c < n; c += LANES) to[c] = head[c];

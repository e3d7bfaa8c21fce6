  // experts: products of a row with one of its experts.  grid: (simdgroups of outputs, slots, rows).
  uint simd = threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup;
  uint output = simd * OUTPUTS, lane = thread_index_in_simdgroup;
  uint slot = threadgroup_position_in_grid.y, t = threadgroup_position_in_grid.z, pair = t * SLOTS + slot;
  if (output >= N) return;
  uint live = t < count[COUNT_AT] ? 1 : 0, expert = live ? uint(ids[pair]) : 0;
  const device float *own = x + (IS_FED ? ulong(pair) * K : ulong(t) * X_COLS);
  float sums[WEIGHT_ROWS][1] = {};
  if (live) multiply<1>(expert_of(weights, up_weights, expert), output, own, 1, lane, sums);
  add_lanes<1>(sums);
  store<1>({bias + expert * N, up_bias + expert * N, x, x}, sums, own, output, pair, live, lane, y, y);

  // linear: products for up to 8 rows of x.  grid: a simdgroup per OUTPUTS outputs.
  uint simd = threadgroup_position_in_grid.x * SIMDGROUPS + simdgroup_index_in_threadgroup;
  uint output = simd * OUTPUTS, lane = thread_index_in_simdgroup, live = min(count[COUNT_AT], ROWS);
  if (output >= N) return;
  float sums[WEIGHT_ROWS][ROWS] = {};
  multiply<ROWS>({weights, weights + ulong(N) * ROW_BYTES}, output, x, live, lane, sums);
  add_lanes<ROWS>(sums);
  store<ROWS>({bias, bias + N, added, GAIN}, sums, x, output, 0, live, lane, y, Z);

  // linear_tile: products for many rows of x.  grid: a threadgroup per OUTPUTS outputs and TILE_ROWS rows.
  threadgroup float decoded[DECODED];
  uint simd = simdgroup_index_in_threadgroup, lane = thread_index_in_simdgroup;
  uint output = threadgroup_position_in_grid.x * OUTPUTS, tile = threadgroup_position_in_grid.y * TILE_ROWS;
  uint row = tile + simd * TILE_M, n = min(count[COUNT_AT], ROWS), live = n > row ? min(n - row, TILE_M) : 0;
  float sums[WEIGHT_ROWS][TILE_M] = {};
  const device float *own = x + ulong(row) * X_COLS;
  if (n > tile) multiply_tile(decoded, {weights, weights + ulong(N) * ROW_BYTES}, output, own, live, simd, lane, sums);
  add_lanes<TILE_M>(sums);
  store<TILE_M>({bias, bias + N, added, GAIN}, sums, own, output, row, live, lane, y, Z);

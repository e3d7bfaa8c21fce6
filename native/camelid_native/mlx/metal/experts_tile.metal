  // experts_tile: products of a tile of pairs of a row and a slot, sorted by expert; x has the pairs' rows in this order.
  // borders[e] is the number of pairs of experts before e.  grid: (outputs, tiles of all experts).
  threadgroup float decoded[DECODED];
  uint simd = simdgroup_index_in_threadgroup, lane = thread_index_in_simdgroup;
  uint output = threadgroup_position_in_grid.x * OUTPUTS, tile = threadgroup_position_in_grid.y, expert = 0;
  for (; expert < EXPERTS; expert++) {
    uint tiles = (borders[expert + 1] - borders[expert] + TILE_ROWS - 1) / TILE_ROWS;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (expert == EXPERTS) return;
  uint first = borders[expert] + tile * TILE_ROWS + simd * TILE_M, end = borders[expert + 1];
  uint live = end > first ? min(end - first, TILE_M) : 0;
  float sums[WEIGHT_ROWS][TILE_M] = {};
  Weights own = expert_of(weights, up_weights, expert);
  multiply_tile(decoded, own, output, x + ulong(first) * K, live, simd, lane, sums);
  add_lanes<TILE_M>(sums);
  for (uint t = 0; t < TILE_M; t++) {
    if (lane != t || t >= live) continue;
    for (uint i = 0; i < OUTPUTS && output + i < N; i++) {
      float up = sums[(PARTS - 1) * OUTPUTS + i][t];
      ulong at = ulong(order[first + t]) * N + output + i;
      y[at] = finished({bias + expert * N, up_bias + expert * N, x, x}, sums[i][t], up, output + i, at);
    }
  }

  // embed: y[t] = SCALE * row of the weight with this id.  grid: units of a row, rows.
  uint unit = threadgroup_position_in_grid.x * LANES + thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  if (unit >= UNITS) return;
  float w[8] = {};
  if (t < count[COUNT_AT]) decode8(weights + ulong(ids[t]) * ROW_BYTES, unit, w);
  for (uint i = 0; i < 8; i++) y[ulong(t) * K + unit * 8 + i] = SCALE * w[i];

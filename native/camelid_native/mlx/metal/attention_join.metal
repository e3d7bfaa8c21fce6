  // attention_join: joins the splits of a row in order.  grid: (values of all heads, rows).
  uint i = threadgroup_position_in_grid.x * LANES + thread_index_in_simdgroup, t = threadgroup_position_in_grid.y;
  if (i >= N_HEADS * V_DIM) return;
  ulong at = (ulong(t) * N_HEADS + i / V_DIM) * SPLITS;
  Softmax sum = {HAS_SINKS ? sinks[i / V_DIM] : LOWEST, HAS_SINKS ? 1.0f : 0.0f};
  float out = 0.0f;
  if (t < step[0]) {
    Row row = row_at(step, t);
    Keys seen = seen_by(row, group_at(step, row.sequence, GROUP));
    for (uint split = seen.first / SPLIT; split * SPLIT < seen.end; split++) {
      Softmax part = {softmaxes[(at + split) * 2], softmaxes[(at + split) * 2 + 1]};
      Fades by = fades_of(sum, part);
      out = joined(out, parts[(at + split) * V_DIM + i % V_DIM], by);
      sum = joined(sum, part, by);
    }
  }
  y[ulong(t) * N_HEADS * V_DIM + i] = t < step[0] ? out / sum.sum : 0.0f;

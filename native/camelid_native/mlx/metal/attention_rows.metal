  // attention_rows: all splits of a row, in order.
  float out[ROW_VALUES] = {};
  Softmax joins[ROW_VALUES];  // of the head of each value
  for (uint j = 0; j < ROW_VALUES; j++) {
    uint h = min((thread_number + j * THREADS) / V_DIM, HEADS - 1);
    joins[j] = {HAS_SINKS ? sinks[head + h] : LOWEST, HAS_SINKS ? 1.0f : 0.0f};
  }
  for (uint split = seen.first / SPLIT; split * SPLIT < seen.end && is_live; split++) {
    Keys own = {max(seen.first, split * SPLIT), min(seen.end, (split + 1) * SPLIT)};
    attend_split(w, q, store, tail, own, border, tail_group.write, bias);
    for (uint j = 0, i = thread_number; i < HEADS * V_DIM; j++, i += THREADS) {
      Softmax part = {tops[i / V_DIM], sums[i / V_DIM]};
      Fades by = fades_of(joins[j], part);
      out[j] = joined(out[j], value_of(w, i), by);
      joins[j] = joined(joins[j], part, by);
    }
  }
  for (uint j = 0, i = thread_number; i < HEADS * V_DIM; j++, i += THREADS)
    y[(ulong(t) * N_HEADS + head) * V_DIM + i] = is_live ? out[j] / joins[j].sum : 0.0f;

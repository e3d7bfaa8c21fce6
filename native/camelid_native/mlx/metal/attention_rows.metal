  // attention_rows: all splits in order, of runs of rows that have a sequence and a border in common.
  float out[ROW_VALUES] = {};
  Softmax joins[ROW_VALUES];  // of the query of each value
  for (uint j = 0; j < ROW_VALUES; j++) {
    uint h = (thread_number + j * THREADS) / V_DIM % HEADS;
    joins[j] = {HAS_SINKS ? sinks[head + h] : LOWEST, HAS_SINKS ? 1.0f : 0.0f};
  }
  for (uint begin = 0, n = 1; begin < AT_ONCE && first_row + begin < live; begin += n) {
    Row lead = row_at(step, first_row + begin);
    Sequence s = sequence_of(step, lead, store, tail);
    Keys seen = seen_by(lead, s.group);
    for (n = 1; begin + n < AT_ONCE && first_row + begin + n < live; n++) {
      Row next = row_at(step, first_row + begin + n);
      if (next.sequence != lead.sequence || border_of(next.state_row) != s.border) break;
      Keys more = seen_by(next, s.group);
      seen = {min(seen.first, more.first), max(seen.end, more.end)};
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // others may still read the run before
    if (thread_number < AT_ONCE) {
      bool is_own = thread_number >= begin && thread_number < begin + n;
      Row row = row_at(step, is_own ? first_row + thread_number : first_row);
      Keys own = seen_by(row, s.group);
      firsts[thread_number] = own.first, ends[thread_number] = is_own ? own.end : 0;
      state_rows[thread_number] = row.state_row;
    }
    for (uint split = seen.first / SPLIT; split * SPLIT < seen.end; split++) {
      Keys own = {max(seen.first, split * SPLIT), min(seen.end, (split + 1) * SPLIT)};
      attend_split(w, heads, s, own, bias);
      for (uint j = 0, i = thread_number; i < QUERIES * V_DIM; j++, i += THREADS) {
        Softmax part = {tops[i / V_DIM], sums[i / V_DIM]};
        Fades by = fades_of(joins[j], part);
        out[j] = joined(out[j], value_of(w, i), by);
        joins[j] = joined(joins[j], part, by);
      }
    }
  }
  for (uint j = 0, i = thread_number; i < QUERIES * V_DIM; j++, i += THREADS) {
    uint t = first_row + i / V_DIM / HEADS;
    ulong at = (ulong(t) * N_HEADS + head) * V_DIM + i % (HEADS * V_DIM);
    if (t < T_ROWS) y[at] = t < live ? out[j] / joins[j].sum : 0.0f;
  }

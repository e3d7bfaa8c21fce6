  // attention_part: the sums of one split of a row's keys.
  if (first_row >= live) return;
  Row lead = row_at(step, first_row);
  Sequence s = sequence_of(step, lead, store, tail);
  uint split = threadgroup_position_in_grid.x;
  Keys seen = seen_by(lead, s.group), own = {max(seen.first, split * SPLIT), min(seen.end, (split + 1) * SPLIT)};
  if (own.first >= own.end) return;
  if (thread_number == 0) firsts[0] = own.first, ends[0] = own.end, state_rows[0] = lead.state_row;
  attend_split(w, heads, s, own, bias);
  ulong at = ulong(first_row) * N_HEADS + head;  // of the first head's sums
  for (uint i = thread_number; i < HEADS * V_DIM; i += THREADS)
    y[((at + i / V_DIM) * SPLITS + split) * V_DIM + i % V_DIM] = value_of(w, i);
  for (uint h = thread_number; h < HEADS; h += THREADS) {
    softmaxes[((at + h) * SPLITS + split) * 2] = tops[h];
    softmaxes[((at + h) * SPLITS + split) * 2 + 1] = sums[h];
  }

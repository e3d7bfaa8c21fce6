  // attention_part: the sums of one split of a row's keys.
  uint split = threadgroup_position_in_grid.x;
  Keys own = {max(seen.first, split * SPLIT), min(seen.end, (split + 1) * SPLIT)};
  if (!is_live || own.first >= own.end) return;
  attend_split(w, q, store, tail, own, border, tail_group.write, bias);
  ulong at = ulong(t) * N_HEADS + head;  // of the first head's sums
  for (uint i = thread_number; i < HEADS * V_DIM; i += THREADS)
    y[((at + i / V_DIM) * SPLITS + split) * V_DIM + i % V_DIM] = value_of(w, i);
  for (uint h = thread_number; h < HEADS; h += THREADS) {
    softmaxes[((at + h) * SPLITS + split) * 2] = tops[h];
    softmaxes[((at + h) * SPLITS + split) * 2 + 1] = sums[h];
  }

  // selection: threadgroup memory of a selection.
  threadgroup ulong tops[MOST_WANTED];
  threadgroup ulong kept[MOST_KEPT];
  threadgroup ulong sorted[MOST_WANTED];
  threadgroup atomic_uint bins[BINS];
  threadgroup atomic_uint n_kept[1];
  threadgroup uint cut[2];
  threadgroup float sums[SIMDS];
  threadgroup ulong places[SIMDS];
  Selection selection = {tops, kept, sorted, bins, n_kept, cut};
  uint o = threadgroup_position_in_grid.x, i = thread_index_in_threadgroup;
  const device float *row = logits + ulong(o) * VOCAB;

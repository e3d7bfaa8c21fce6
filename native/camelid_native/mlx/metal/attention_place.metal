  // attention_place: where a threadgroup of attention is.  grid: (splits, head groups, rows), or one split for all.
  threadgroup float query[QUERY_SIZE];
  threadgroup float weights[TILE * HEADS];
  threadgroup float parts[PARTS_SIZE];
  threadgroup float fades[HEADS];
  threadgroup float tops[HEADS];
  threadgroup float sums[HEADS];
  threadgroup uint places[TILE];
  uint t = threadgroup_position_in_grid.z, thread_number = thread_index_in_threadgroup;
  Work w = {query, weights, parts, fades, places, tops, sums, thread_number, thread_number / LANES, thread_number % LANES};
  bool is_live = t < step[0];
  Row row = row_at(step, is_live ? t : 0);
  Group group = group_at(step, row.sequence, GROUP), tail_group = group_at(step, row.sequence, TAIL_GROUP);
  uint head = threadgroup_position_in_grid.y * HEADS;
  Query q = {row.state_row, head, head / (N_HEADS / N_KV_HEADS)};
  Pool<KV> store = {keys, values, tables + group.read * TABLE_COLS, KEY_STRIDE, VALUE_STRIDE};
  Pool<half> tail = {tail_keys, tail_values, tail_tables + tail_group.read * TAIL_COLS, TAIL_KEY_STRIDE, TAIL_VALUE_STRIDE};
  Keys seen = seen_by(row, group);
  uint border = HAS_TAIL ? border_of(row.state_row) : 0;
  for (uint i = thread_number; i < QUERY_SIZE && is_live; i += THREADS)
    query[i] = q_rows[(ulong(t) * N_HEADS + head) * HEAD_DIM + i];

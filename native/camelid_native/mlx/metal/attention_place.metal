  // attention_place: what a threadgroup of attention has.  grid: (splits, head groups, groups of AT_ONCE rows).
  threadgroup float query[QUERY_SIZE];
  threadgroup float weights[TILE * QUERIES];
  threadgroup float parts[PARTS_SIZE];
  threadgroup float fades[QUERIES];
  threadgroup float tops[QUERIES];
  threadgroup float sums[QUERIES];
  threadgroup uint places[TILE];
  threadgroup uint firsts[AT_ONCE];
  threadgroup uint ends[AT_ONCE];
  threadgroup uint state_rows[AT_ONCE];
  uint first_row = threadgroup_position_in_grid.z * AT_ONCE, thread_number = thread_index_in_threadgroup;
  uint simd = thread_number / LANES, lane = thread_number % LANES, live = min(step[0], T_ROWS);
  Work w = {query, weights, parts, fades, tops, sums, places, firsts, ends, state_rows, thread_number, simd, lane};
  uint head = threadgroup_position_in_grid.y * HEADS;
  Heads heads = {head, head / (N_HEADS / N_KV_HEADS)};
  for (uint i = thread_number; i < QUERY_SIZE; i += THREADS) {
    uint t = first_row + i / HEAD_DIM / HEADS;
    query[i] = t < live ? q_rows[(ulong(t) * N_HEADS + head + i / HEAD_DIM % HEADS) * HEAD_DIM + i % HEAD_DIM] : 0.0f;
  }
  Pool<KV> store = {keys, values, tables, KEY_STRIDE, VALUE_STRIDE};
  Pool<half> tail = {tail_keys, tail_values, tail_tables, TAIL_KEY_STRIDE, TAIL_VALUE_STRIDE};

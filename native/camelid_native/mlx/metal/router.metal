  // router: p = gate(logits); the experts with the largest p + bias, the largest first, and their p: divided by their sum
  // if NORMALIZE, times SCALE. GATE 0: softmax, 1: sigmoid, 2: softmax over the chosen logits,
  // 3: for each chosen, softmax over the logits near it that are not above it.  grid: rows, a simdgroup each.
  threadgroup float scores[EXPERTS];
  threadgroup ulong places[EXPERTS];
  threadgroup ulong groups[N_GROUPS];
  threadgroup float chosen[USED];
  uint lane = thread_index_in_simdgroup, t = threadgroup_position_in_grid.x;
  const device float *row = logits + ulong(t) * EXPERTS;
  bool is_live = t < count[COUNT_AT];
  float top = LOWEST, sum = 0.0f;
  for (uint e = lane; e < EXPERTS; e += LANES) top = row[e] > top ? row[e] : top;
  for (ushort mask = 1; mask < LANES; mask *= 2) top = max(top, simd_shuffle_xor(top, mask));
  for (uint e = lane; e < EXPERTS; e += LANES) {
    float p = GATE == 0 ? exp_of(row[e] - top) : GATE == 1 ? sigmoid_of(row[e]) : row[e];
    scores[e] = p;
    sum = sum + p;
  }
  sum = lane_sum(sum);
  for (uint e = lane; e < EXPERTS; e += LANES) {
    if (GATE == 0) scores[e] = scores[e] / sum;
    places[e] = place_of(HAS_BIAS ? scores[e] + bias[e] : scores[e], e);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  uint size = EXPERTS / N_GROUPS;  // experts form groups; only those of the best pairs take part
  for (uint g = lane; g < N_GROUPS && GROUPS_USED < N_GROUPS; g += LANES) {
    float first = -infinity(), second = -infinity();
    for (uint e = g * size; e < (g + 1) * size; e++) {
      float p = value_at(places[e]);
      second = max(second, min(first, p));
      first = max(first, p);
    }
    groups[g] = place_of(first + second, g);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = lane; e < EXPERTS && GROUPS_USED < N_GROUPS; e += LANES)
    if (count_above(groups, N_GROUPS, groups[e / size]) >= GROUPS_USED) places[e] = 0;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = lane; e < EXPERTS; e += LANES) {
    uint rank = count_above(places, EXPERTS, places[e]);
    if (rank >= USED || places[e] == 0) continue;
    chosen[rank] = scores[e];
    if (GATE == 3) {
      float near = 0.0f;
      for (uint o = 0; o < EXPERTS; o++)
        if (places[o] <= places[e] && scores[e] - scores[o] <= 0.02f * max(abs(scores[o]), scores[e]))
          near = near + exp_of(scores[o] - scores[e]);
      chosen[rank] = 1.0f / near;
    }
    ids[t * USED + rank] = is_live ? e : 0;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  float all = 0.0f, highest = chosen[0];
  for (uint u = 0; u < USED; u++) all = all + (GATE == 2 ? exp_of(chosen[u] - highest) : chosen[u]);
  for (uint u = lane; u < USED; u += LANES) {
    float p = GATE == 2 ? exp_of(chosen[u] - highest) / all : chosen[u];
    if (NORMALIZE && GATE != 2) p = p / all;
    probs[t * USED + u] = is_live ? SCALE * p : 0.0f;
  }

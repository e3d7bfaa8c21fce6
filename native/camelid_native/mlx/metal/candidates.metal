  // candidates: ids and logits of the 256 largest logits (all if the row has fewer), the largest first; then mean and
  // variance of the logits above -infinity.  grid: a threadgroup per output.
  device uint *out = y + o * CANDIDATE_WORDS;
  for (uint word = i; word < CANDIDATE_WORDS; word += THREADS) out[word] = 0;
  threadgroup_barrier(mem_flags::mem_device);
  if (o >= step[2]) return;
  float sum = 0.0f, n = 0.0f, squares = 0.0f;
  for (uint id = i; id < VOCAB; id += THREADS) {
    bool is_counted = row[id] != -infinity();
    sum = sum + (is_counted ? row[id] : 0.0f);
    n += is_counted ? 1.0f : 0.0f;
  }
  float all = max(block_sum(n, sums, i), 1.0f), mean = block_sum(sum, sums, i) / all;
  for (uint id = i; id < VOCAB; id += THREADS) {
    float off = row[id] != -infinity() ? row[id] - mean : 0.0f;
    squares = fma(off, off, squares);
  }
  float variance = block_sum(squares, sums, i) / all;
  Logits own = {row, nullptr, nullptr, nullptr, false};
  uint want = min(VOCAB, MOST_WANTED);
  keep_highest(selection, own, want, own_highest(own, i), i);
  if (i < want) {
    out[i] = id_at(sorted[i]);
    out[MOST_WANTED + i] = as_type<uint>(row[id_at(sorted[i])]);
  }
  if (i == 0) out[2 * MOST_WANTED] = as_type<uint>(mean), out[2 * MOST_WANTED + 1] = as_type<uint>(variance);

// draw: the id of an output: scan of its row, and the best score of the ids that are left.
// Noise is in [-2.86, 17.33]: a score below the top by more than the range cannot win.
constant constexpr float HOPELESS = -20.5f;
constant constexpr uint IS_USABLE = 0, IS_NAN = 1, IS_ZERO = 2;  // status of a row; NaN or +infinity

struct Draw { float temperature, top_p, log_min_p; uint top_k; Noise noise; };

inline Draw draw_of(const device uint *how, uint position) {
  float min_p = as_type<float>(how[MIN_P]);
  Noise noise = {how[SEED_LOW], how[SEED_HIGH], position + how[OFFSET], how[CHOICE]};
  float log_min_p = min_p > 0.0f ? log_of(min_p) : -infinity();
  return {as_type<float>(how[TEMPERATURE]), as_type<float>(how[TOP_P]), log_min_p, how[TOP_K], noise};
}

// A row before it is adjusted: the thread's highest place, the row's, its status and log-sum-exp.
struct Scan { ulong own_top, top; uint status; float log_sum_exp; };

inline Scan scan(const device float *row, threadgroup float *sums, threadgroup ulong *tops, uint thread_number) {
  float most = LOWEST, sum = 0.0f, n_set = 0.0f;  // sum of exp(logit - most)
  ulong own_top = 0;
  for (uint id = thread_number; id < VOCAB; id += THREADS) {
    float v = row[id], ratio = exp_of(-abs(v - most));
    own_top = max(own_top, place_of(v, id));
    sum = v > most ? fma(sum, ratio, 1.0f) : sum + ratio;
    most = v > most ? v : most;
    n_set += v != 0.0f ? 1.0f : 0.0f;
  }
  ulong top = block_max(own_top, tops, thread_number);
  float highest = value_at(top), total = block_sum(sum * exp_of(most - highest), sums, thread_number);
  bool is_zero = block_sum(n_set, sums, thread_number) == 0.0f, is_broken = !(highest < infinity());
  return {own_top, top, is_broken ? IS_NAN : is_zero ? IS_ZERO : IS_USABLE, highest + log_of(total)};
}

// Place of an id's score in a draw; `beyond` is its logit minus the largest logit.
inline ulong score(float beyond, uint id, Draw draw) {
  float level = beyond / draw.temperature;
  if (level < HOPELESS || beyond < draw.log_min_p) return 0;
  return place_of(level + gumbel(id, draw.noise), id);
}

// True if the thread's place of the n sorted is within top p: the weights before it sum to less than top_p of all.
inline bool is_probable(Selection s, threadgroup float *weights, uint n, float top_p, uint thread_number) {
  float top = value_at(s.sorted[0]);
  if (thread_number < n) weights[thread_number] = exp_of(value_at(s.sorted[thread_number]) - top);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float before = 0.0f, sum = 0.0f;
  for (uint i = 0; i < n; i++) {
    before = i == thread_number ? sum : before;
    sum = sum + weights[i];
  }
  return thread_number < n && (thread_number == 0 || !(top_p < 1.0f) || before < top_p * sum);
}

// The best score of the thread's ids: of all ids, or of the top k within top p.
inline ulong best_of(Logits logits, Selection s, threadgroup float *weights, ulong own_top, float top, Draw draw,
                     uint thread_number) {
  if (draw.top_k == 0) {
    ulong best = 0;
    for (uint id = thread_number; id < VOCAB; id += THREADS) best = max(best, score(logit_at(logits, id) - top, id, draw));
    return best;
  }
  uint n = min(draw.top_k, VOCAB);
  keep_highest(s, logits, n, own_top, thread_number);
  if (!is_probable(s, weights, n, draw.top_p, thread_number)) return 0;
  ulong place = s.sorted[thread_number];
  return score(value_at(place) - top, id_at(place), draw);
}

inline const device uint *output_at(const device uint *step, uint o) { return step + step[OUTPUTS_AT] + o * OUTPUT_WORDS; }

// The position of the last output of an output's sequence.
inline uint newest_position(const device uint *step, uint o) {
  uint last = o;
  for (uint later = o + 1; later < step[2]; later++)
    last = output_at(step, later)[1] == output_at(step, o)[1] ? later : last;
  return output_at(step, last)[2];
}

// The number of ids before `position` in a ring that has a place for the draw at position `newest`.
inline uint n_ids_before(uint position, uint newest) {
  uint first = newest < RING_ROWS ? 0 : newest + 1 - RING_ROWS;
  return position < first ? 0 : position - first;
}

// adjust: logits after biases and penalties. At most 80 ids are touched; the others are told from them by one bit of a
// filter of 1024, so that a look at a logit costs a load of threadgroup memory.
constant constexpr uint MOST_BIASES = 16, MOST_LAST_N = 64, MOST_TOUCHED = MOST_BIASES + MOST_LAST_N, NO_ID = ~0u;
constant constexpr uint FILTER_WORDS = 32;
// Words of a sampling row (plan/step.py).
enum How : uint {
  TEMPERATURE, SEED_LOW, SEED_HIGH, CHOICE, OFFSET, TOP_K, TOP_P, MIN_P, REPEAT, FREQUENCY, PRESENCE, LAST_N, BIASES,
  FIRST_BIAS, HOW_WORDS
};

// `touched` has the id of each entry: biases, then the last positions. The first entry of an id has its new logit.
struct Logits {
  const device float *row;
  threadgroup uint *touched, *filter;
  threadgroup float *changed;
  bool is_adjusted;
};

struct Penalties { float repeat, frequency, presence; uint last_n, n_biases; const device uint *biases; };

inline Penalties penalties_of(const device uint *step, const device uint *how) {
  float repeat = as_type<float>(how[REPEAT]), frequency = as_type<float>(how[FREQUENCY]);
  float presence = as_type<float>(how[PRESENCE]);
  bool is_neutral = repeat == 1.0f && frequency == 0.0f && presence == 0.0f;
  const device uint *biases = step + step[BIASES_AT] + 2 * how[FIRST_BIAS];
  return {repeat, frequency, presence, is_neutral ? 0 : how[LAST_N], how[BIASES], biases};
}

// The id that entry i touches: entries are the biases, then the last_n positions before `position`.
inline uint touched_id(Penalties p, const device uint *ring, uint position, uint i) {
  if (i < MOST_BIASES) return i < p.n_biases ? p.biases[2 * i] : NO_ID;
  uint back = i - MOST_BIASES;
  return back < p.last_n ? ring[(position - 1 - back) % RING_ROWS] : NO_ID;
}

inline float adjusted(float logit, Penalties p, const threadgroup uint *touched, uint id) {
  float n = 0.0f;
  for (uint i = 0; i < MOST_BIASES; i++)
    if (touched[i] == id) logit = logit + as_type<float>(p.biases[2 * i + 1]);
  for (uint i = MOST_BIASES; i < MOST_TOUCHED; i++) n += touched[i] == id ? 1.0f : 0.0f;
  if (n == 0.0f) return logit;
  return (logit > 0.0f ? logit / p.repeat : logit * p.repeat) - (n * p.frequency + p.presence);
}

inline void adjust(Logits logits, Penalties p, const device uint *ring, uint position, uint i) {
  if (i < MOST_TOUCHED) logits.touched[i] = touched_id(p, ring, position, i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < MOST_TOUCHED && logits.touched[i] < VOCAB)
    logits.changed[i] = adjusted(logits.row[logits.touched[i]], p, logits.touched, logits.touched[i]);
  uint word = 0;
  for (uint k = 0; k < MOST_TOUCHED; k++)
    if (logits.touched[k] / 32 % FILTER_WORDS == i) word |= 1u << logits.touched[k] % 32;
  if (i < FILTER_WORDS) logits.filter[i] = word;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline float logit_at(Logits logits, uint id) {
  float v = logits.row[id];
  if (!logits.is_adjusted || !(logits.filter[id / 32 % FILTER_WORDS] >> id % 32 & 1)) return v;
  for (uint i = 0; i < MOST_TOUCHED; i++)
    if (logits.touched[i] == id) return logits.changed[i];
  return v;
}

inline ulong own_highest(Logits logits, uint thread_number) {
  ulong top = 0;
  for (uint id = thread_number; id < VOCAB; id += THREADS) top = max(top, place_of(logit_at(logits, id), id));
  return top;
}

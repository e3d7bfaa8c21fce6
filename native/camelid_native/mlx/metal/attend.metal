// attend: softmax sums of a row's HEADS query heads, which share a KV head and each load of its keys and values.
//
// Order of sums. Keys are in splits of SPLIT and tiles of TILE, which begin at multiples of these numbers; a split is one
// online softmax over its tiles, and splits are joined in order. Column unit u of 4 belongs to lane u % 4 of a key; a
// lane's products are a chain of fused sums, and lanes are added in pairs. Values are chains over the keys of a share,
// and shares are added in order. So the bits of a row depend on its keys and the shapes alone.
//
// Constants: HEADS, N_HEADS, HEAD_DIM, V_DIM, V_HEAD (columns of a head's values in the pool), PAGE, TABLE_COLS, SCALE,
// SOFTCAP, HAS_BIAS, BIAS_ROWS, WINDOW, IS_HELD, GROUP, and of the tail: HAS_TAIL, TAIL_GROUP, TAIL_COLS, TAIL_ROWS,
// TAIL_BATCH; strides of rows in stored elements: KEY_STRIDE, VALUE_STRIDE, TAIL_KEY_STRIDE, TAIL_VALUE_STRIDE.
constant constexpr uint THREADS = 128, TILE = 32, KEY_LANES = 4, SIMDS = THREADS / LANES;
constant constexpr uint SHARES = V_DIM < THREADS ? THREADS / V_DIM : 1, SHARE_KEYS = (TILE + SHARES - 1) / SHARES;
constant constexpr uint OWN = (V_DIM + THREADS - 1) / THREADS;  // columns of values of a thread
constant constexpr uint QUERY_SIZE = HEADS * HEAD_DIM, PARTS_SIZE = SHARES * HEADS * V_DIM;

// Threadgroup memory: queries, then weights of a tile's keys, their pool rows, and what the softmax of a head has so far.
struct Work {
  threadgroup float *query, *weights, *parts, *fades;
  threadgroup uint *places;
  threadgroup float *tops, *sums;
  uint thread_number, simd, lane;
};

template <class Stored> struct Pool {
  const device Stored *keys, *values;
  const device uint *table;  // units of the sequence's pages
  uint key_stride, value_stride;
};

struct Keys { uint first, end; };
struct Query { uint state_row, head, kv_head; };  // `head`: the first of the threadgroup's

// State rows that a row sees: causal rows, at most WINDOW of them unless it is 0, or rows held before the step.
inline Keys seen_by(Row row, Group group) {
  uint next = row.state_row + 1;
  if (IS_HELD) return {group.write, group.held};
  return {WINDOW && next > WINDOW ? max(group.write, next - WINDOW) : group.write, next};
}

// The first row that a row reads from the tail (plan/tiers.py).
inline uint border_of(uint state_row) {
  return state_row + 1 > TAIL_ROWS ? (state_row + 1 - TAIL_ROWS) / TAIL_BATCH * TAIL_BATCH : 0;
}

inline float score_of(Query q, float product, uint key, uint head, const device float *bias) {
  float score = product * SCALE;
  if (SOFTCAP > 0.0f) score = SOFTCAP * tanh_of(score / SOFTCAP);
  return HAS_BIAS ? score + bias[min(q.state_row - key, BIAS_ROWS - 1) * N_HEADS + q.head + head] : score;
}

// weights[key, head] = query . key for the tile's keys; a key has four neighbouring lanes.
template <class Stored> inline void stage_products(Work w, Query q, Pool<Stored> pool, uint start, Keys keys) {
  uint key = w.thread_number / KEY_LANES, own = w.lane % KEY_LANES, at = start + key;
  float sums[HEADS] = {};
  if (at >= keys.first && at < keys.end) {
    uint place = pool.table[at / PAGE] * PAGE + at % PAGE;
    const device Stored *row = pool.keys + ulong(place) * pool.key_stride;
    if (own == 0) w.places[key] = place;
    for (uint c = own * 4; c < HEAD_DIM; c += KEY_LANES * 4) {
      float4 k = four_at(row, q.kv_head * HEAD_DIM + c);
      for (uint h = 0; h < HEADS; h++) {
        const threadgroup float *query = w.query + h * HEAD_DIM + c;
        sums[h] = fma(query[3], k.w, fma(query[2], k.z, fma(query[1], k.y, fma(query[0], k.x, sums[h]))));
      }
    }
  }
  for (uint h = 0; h < HEADS; h++) {
    float sum = sums[h];
    for (ushort mask = 1; mask < KEY_LANES; mask *= 2) sum = sum + simd_shuffle_xor(sum, mask);
    if (own == h % KEY_LANES) w.weights[key * HEADS + h] = sum;
  }
}

// Turns products into weights relative to a head's highest score so far. A simdgroup has a head, a lane a key.
inline void weigh_keys(Work w, Query q, uint start, Keys keys, const device float *bias) {
  uint at = start + w.lane;
  bool is_inside = at >= keys.first && at < keys.end;
  for (uint h = w.simd; h < HEADS; h += SIMDS) {
    float before = w.tops[h], score = LOWEST;
    if (is_inside) score = score_of(q, w.weights[w.lane * HEADS + h], at, h, bias);
    float top = higher(before, score);
    for (ushort mask = 1; mask < LANES; mask *= 2) top = higher(top, simd_shuffle_xor(top, mask));
    float weight = is_inside ? exp_of(score - top) : 0.0f, fade = exp_of(before - top), sum = lane_sum(weight);
    w.weights[w.lane * HEADS + h] = weight;
    simdgroup_barrier(mem_flags::mem_threadgroup);  // all lanes have read the head's state
    if (w.lane == 0) w.fades[h] = fade, w.tops[h] = top, w.sums[h] = fma(w.sums[h], fade, sum);
  }
}

inline uint share_of(Work w) { return V_DIM < THREADS ? w.thread_number / V_DIM : 0; }
inline uint column_of(Work w, uint i) { return V_DIM < THREADS ? w.thread_number % V_DIM : w.thread_number + i * THREADS; }

// Adds the weighted values of the thread's share of a tile to its own columns.
template <class Stored>
inline void add_values(Work w, Query q, Pool<Stored> pool, uint start, Keys keys, thread float (&sums)[OWN][HEADS]) {
  uint first = max(start + share_of(w) * SHARE_KEYS, keys.first);
  uint end = min(min(start + (share_of(w) + 1) * SHARE_KEYS, start + TILE), keys.end);
  for (uint i = 0; i < OWN; i++) {
    uint c = column_of(w, i);
    for (uint h = 0; h < HEADS; h++) sums[i][h] = sums[i][h] * w.fades[h];
    for (uint at = first; at < end && c < V_DIM; at++) {
      ulong row = ulong(w.places[at - start]) * pool.value_stride;
      float v = one_at(pool.values + row, q.kv_head * V_HEAD + c);
      for (uint h = 0; h < HEADS; h++) sums[i][h] = fma(w.weights[(at - start) * HEADS + h], v, sums[i][h]);
    }
  }
}

template <class Stored>
inline void attend_tile(Work w, Query q, Pool<Stored> pool, uint start, Keys keys, const device float *bias,
                        thread float (&sums)[OWN][HEADS]) {
  threadgroup_barrier(mem_flags::mem_threadgroup);  // others may still read the tile before
  stage_products(w, q, pool, start, keys);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  weigh_keys(w, q, start, keys, bias);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  add_values(w, q, pool, start, keys, sums);
}

// The sums of a split's keys: w.tops and w.sums of each head, and values in w.parts, those of share 0 complete.
template <class Stored>
inline void attend_split(Work w, Query q, Pool<Stored> store, Pool<half> tail, Keys keys, uint border, uint tail_kept,
                         const device float *bias) {
  float sums[OWN][HEADS] = {};
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint h = w.thread_number; h < HEADS; h += THREADS) w.tops[h] = LOWEST, w.sums[h] = 0.0f;
  for (uint start = keys.first / TILE * TILE; start < keys.end; start += TILE) {
    if (HAS_TAIL && start >= border) {
      Keys recent = {max(keys.first, tail_kept), keys.end};
      if (recent.first < start + TILE) attend_tile(w, q, tail, start, recent, bias, sums);
    } else {
      attend_tile(w, q, store, start, keys, bias, sums);
    }
  }
  for (uint i = 0; i < OWN; i++)
    for (uint h = 0; h < HEADS; h++)
      if (share_of(w) < SHARES && column_of(w, i) < V_DIM)
        w.parts[(share_of(w) * HEADS + h) * V_DIM + column_of(w, i)] = sums[i][h];
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Value i of the threadgroup's heads: its shares in order.
inline float value_of(Work w, uint i) {
  float sum = w.parts[i];
  for (uint share = 1; share < SHARES; share++) sum = sum + w.parts[share * HEADS * V_DIM + i];
  return sum;
}

// attend: softmax sums of HEADS query heads of each of AT_ONCE rows of a sequence, which share a KV head and each load of
// its keys and values.
//
// Order of sums. Keys are in splits of SPLIT and tiles of TILE, which begin at multiples of these numbers; a split is one
// online softmax over its tiles, and splits are joined in order. Column unit u of 4 belongs to lane u % 4 of a key; a
// lane's products are a chain of fused sums, and lanes are added in pairs. Values are chains over the keys of a share,
// and shares are added in order. A tile without a key of a row changes none of its sums. So the bits of a row depend on
// its keys and the shapes alone.
//
// Constants: AT_ONCE, HEADS, N_HEADS, HEAD_DIM, V_DIM, V_HEAD (columns of a head's values in the pool), PAGE, TABLE_COLS,
// SCALE, SOFTCAP, HAS_BIAS, BIAS_ROWS, WINDOW, IS_HELD, IS_CHUNKED, GROUP, and of the tail: HAS_TAIL, TAIL_GROUP, TAIL_COLS,
// TAIL_ROWS, TAIL_BATCH; strides of rows in stored elements: KEY_STRIDE, VALUE_STRIDE, TAIL_KEY_STRIDE, TAIL_VALUE_STRIDE.
constant constexpr uint THREADS = 128, TILE = 32, KEY_LANES = 4, SIMDS = THREADS / LANES, QUERIES = AT_ONCE * HEADS;
constant constexpr uint SHARES = V_DIM < THREADS ? THREADS / V_DIM : 1, SHARE_KEYS = (TILE + SHARES - 1) / SHARES;
constant constexpr uint OWN = (V_DIM + THREADS - 1) / THREADS;  // columns of values of a thread
constant constexpr uint QUERY_SIZE = QUERIES * HEAD_DIM, PARTS_SIZE = SHARES * QUERIES * V_DIM;

// Threadgroup memory: queries, weights of a tile's keys, their pool rows, what the softmax of a query has so far, and the
// keys that a row sees: [firsts, ends).
struct Work {
  threadgroup float *query, *weights, *parts, *fades, *tops, *sums;
  threadgroup uint *places, *firsts, *ends, *state_rows;
  uint thread_number, simd, lane;
};

template <class Stored> struct Pool {
  const device Stored *keys, *values;
  const device uint *table;  // units of the sequence's pages
  uint key_stride, value_stride;
};

struct Keys { uint first, end; };
struct Heads { uint first, kv_head; };  // `first` of the threadgroup's query heads

// State rows that a row sees: up to itself, or all rows held; rows before the last WINDOW up to itself are hidden
// unless it is 0, and with chunks of WINDOW rows those before the row's chunk.
inline Keys seen_by(Row row, Group group) {
  uint next = row.state_row + 1;
  if (IS_CHUNKED) return {max(group.write, row.state_row / max(WINDOW, 1u) * WINDOW), next};
  uint first = WINDOW && next > WINDOW ? max(group.write, next - WINDOW) : group.write;
  return {first, IS_HELD ? group.held : next};
}

// The first row that a row reads from the tail (plan/tiers.py).
inline uint border_of(uint state_row) {
  return HAS_TAIL && state_row + 1 > TAIL_ROWS ? (state_row + 1 - TAIL_ROWS) / TAIL_BATCH * TAIL_BATCH : 0;
}

// What a row's sequence has: pools with its own tables, and the border between store and tail.
struct Sequence { Group group; Pool<KV> store; Pool<half> tail; uint border, tail_kept; };

inline Sequence sequence_of(const device uint *step, Row row, Pool<KV> store, Pool<half> tail) {
  Group group = group_at(step, row.sequence, GROUP), tail_group = group_at(step, row.sequence, TAIL_GROUP);
  store.table += group.read * TABLE_COLS;
  tail.table += tail_group.read * TAIL_COLS;
  return {group, store, tail, border_of(row.state_row), tail_group.write};
}

// True if the threadgroup's row sees a key.
inline bool sees(Work w, uint row, uint key) { return key >= w.firsts[row] && key < w.ends[row]; }

inline float score_of(Heads heads, float product, uint distance, uint head, const device float *bias) {
  float score = product * SCALE;
  if (SOFTCAP > 0.0f) score = SOFTCAP * tanh_of(score / SOFTCAP);
  return HAS_BIAS ? score + bias[min(distance, BIAS_ROWS - 1) * N_HEADS + heads.first + head] : score;
}

// weights[key, query] = query . key for the tile's keys; a key has four neighbouring lanes.
template <class Stored> inline void stage_products(Work w, Heads heads, Pool<Stored> pool, uint start, Keys keys) {
  uint key = w.thread_number / KEY_LANES, own = w.lane % KEY_LANES, at = start + key;
  float sums[QUERIES] = {};
  if (at >= keys.first && at < keys.end) {
    uint place = pool.table[at / PAGE] * PAGE + at % PAGE;
    const device Stored *row = pool.keys + ulong(place) * pool.key_stride;
    if (own == 0) w.places[key] = place;
    for (uint c = own * 4; c < HEAD_DIM; c += KEY_LANES * 4) {
      float4 k = four_at(row, heads.kv_head * HEAD_DIM + c);
      for (uint q = 0; q < QUERIES; q++) {
        const threadgroup float *query = w.query + q * HEAD_DIM + c;
        sums[q] = fma(query[3], k.w, fma(query[2], k.z, fma(query[1], k.y, fma(query[0], k.x, sums[q]))));
      }
    }
  }
  for (uint q = 0; q < QUERIES; q++) {
    float sum = sums[q];
    for (ushort mask = 1; mask < KEY_LANES; mask *= 2) sum = sum + simd_shuffle_xor(sum, mask);
    if (own == q % KEY_LANES) w.weights[key * QUERIES + q] = sum;
  }
}

// Turns products into weights relative to a query's highest score so far. A simdgroup has a query, a lane a key.
inline void weigh_keys(Work w, Heads heads, uint start, Keys keys, const device float *bias) {
  uint at = start + w.lane;
  for (uint q = w.simd; q < QUERIES; q += SIMDS) {
    uint row = q / HEADS;
    bool is_seen = sees(w, row, at) && at >= keys.first;
    float before = w.tops[q], score = LOWEST;
    if (is_seen) score = score_of(heads, w.weights[w.lane * QUERIES + q], w.state_rows[row] - at, q % HEADS, bias);
    float top = higher(before, score);
    for (ushort mask = 1; mask < LANES; mask *= 2) top = higher(top, simd_shuffle_xor(top, mask));
    float weight = is_seen ? exp_of(score - top) : 0.0f, fade = exp_of(before - top), sum = lane_sum(weight);
    w.weights[w.lane * QUERIES + q] = weight;
    simdgroup_barrier(mem_flags::mem_threadgroup);  // all lanes have read the query's state
    if (w.lane == 0) w.fades[q] = fade, w.tops[q] = top, w.sums[q] = fma(w.sums[q], fade, sum);
  }
}

inline uint share_of(Work w) { return V_DIM < THREADS ? w.thread_number / V_DIM : 0; }
inline uint column_of(Work w, uint i) { return V_DIM < THREADS ? w.thread_number % V_DIM : w.thread_number + i * THREADS; }

// Adds the weighted values of the thread's share of a tile to its own columns.
template <class Stored>
inline void add_values(Work w, Heads heads, Pool<Stored> pool, uint start, Keys keys,
                       thread float (&sums)[OWN][QUERIES]) {
  uint first = max(start + share_of(w) * SHARE_KEYS, keys.first);
  uint end = min(min(start + (share_of(w) + 1) * SHARE_KEYS, start + TILE), keys.end);
  for (uint i = 0; i < OWN; i++) {
    uint c = column_of(w, i);
    for (uint q = 0; q < QUERIES; q++) sums[i][q] = sums[i][q] * w.fades[q];
    for (uint at = first; at < end && c < V_DIM; at++) {
      ulong row = ulong(w.places[at - start]) * pool.value_stride;
      float v = one_at(pool.values + row, heads.kv_head * V_HEAD + c);
      for (uint q = 0; q < QUERIES; q++)
        if (AT_ONCE == 1 || sees(w, q / HEADS, at))
          sums[i][q] = fma(w.weights[(at - start) * QUERIES + q], v, sums[i][q]);
    }
  }
}

template <class Stored>
inline void attend_tile(Work w, Heads heads, Pool<Stored> pool, uint start, Keys keys, const device float *bias,
                        thread float (&sums)[OWN][QUERIES]) {
  threadgroup_barrier(mem_flags::mem_threadgroup);  // others may still read the tile before
  stage_products(w, heads, pool, start, keys);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  weigh_keys(w, heads, start, keys, bias);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  add_values(w, heads, pool, start, keys, sums);
}

// The sums of a split's keys: w.tops and w.sums of each query, and shares of the values in w.parts.
inline void attend_split(Work w, Heads heads, Sequence s, Keys keys, const device float *bias) {
  float sums[OWN][QUERIES] = {};
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint q = w.thread_number; q < QUERIES; q += THREADS) w.tops[q] = LOWEST, w.sums[q] = 0.0f;
  for (uint start = keys.first / TILE * TILE; start < keys.end; start += TILE) {
    if (HAS_TAIL && start >= s.border) {
      Keys recent = {max(keys.first, s.tail_kept), keys.end};
      if (recent.first < start + TILE) attend_tile(w, heads, s.tail, start, recent, bias, sums);
    } else {
      attend_tile(w, heads, s.store, start, keys, bias, sums);
    }
  }
  for (uint i = 0; i < OWN; i++)
    for (uint q = 0; q < QUERIES; q++)
      if (share_of(w) < SHARES && column_of(w, i) < V_DIM)
        w.parts[(share_of(w) * QUERIES + q) * V_DIM + column_of(w, i)] = sums[i][q];
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Value i of the threadgroup's queries: its shares in order.
inline float value_of(Work w, uint i) {
  float sum = w.parts[i];
  for (uint share = 1; share < SHARES; share++) sum = sum + w.parts[share * QUERIES * V_DIM + i];
  return sum;
}

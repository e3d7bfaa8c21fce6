/* attend: softmax sums of a row's HEADS query heads, which share a KV head and each load of its keys and values.
 *
 * Order of sums. A split of keys is one online softmax over tiles of TILE keys, which begin at multiples of TILE.
 * Column unit u of UNIT values belongs to lane u % KEY_LANES of a key; a lane's products are a chain of fused sums,
 * and lanes are added in pairs, and pairs of pairs. Weight k of a tile belongs to sum k % 32, and these sums are added
 * likewise. Values are chains over SHARE_KEYS keys each, added in order. No order depends on HEADS. With a tail
 * (plan/tiers.py), keys from a border on are read from the tail, as halves, in tiles of their own.
 *
 * Macros: HEADS, HEAD_DIM, V_DIM, UNIT (8, or 2 for heads that are no multiples of 8), TAIL_ROWS (0: no tail) and
 * TAIL_BATCH; the header of the state's type defines KvRows. */
#pragma once
#include "kv.h"
#include "softmax.h"

#define THREADS 256
enum {
    KEY_LANES = 4,
    SLOTS = THREADS / KEY_LANES,  /* keys side by side */
    LANE_KEYS = 2,  /* keys of a lane at once, which share each load of the queries */
    TILE = 128,
    KEY_UNITS = HEAD_DIM / UNIT,
    VALUE_UNIT = UNIT < 4 ? UNIT : 4,  /* sums of values fill registers: HEADS times this number */
    VALUE_UNITS = V_DIM / VALUE_UNIT,
    MOST_SHARES = THREADS / VALUE_UNITS,
    SHARE_KEYS = ((TILE + MOST_SHARES - 1) / MOST_SHARES + 3) / 4 * 4,
    SHARES = (TILE + SHARE_KEYS - 1) / SHARE_KEYS,
    PART_HEADS = HEADS > 4 ? (HEADS + 1) / 2 : HEADS,  /* heads whose shares are added at a time */
    TURNS = (HEADS + PART_HEADS - 1) / PART_HEADS,
    TURN_VALUES = (PART_HEADS * V_DIM + THREADS - 1) / THREADS,
    OWN_VALUES = TURNS * TURN_VALUES  /* of a thread, after its shares are added */
};

struct Work {
    float query[HEADS * HEAD_DIM], weights[TILE * HEADS], parts[PART_HEADS * SHARES * V_DIM], fades[HEADS];
    Softmax sums[HEADS];
    Fades joins[HEADS];
    u32 places[TILE];  /* pool rows of the tile's keys */
};

/* The query heads of a block from `head` on, of a row at `state_row`, with the first columns of their keys and values,
 * and how products become scores. A bias [bias_rows, n_heads] goes by distance; its last row serves all larger ones. */
struct Query {
    int state_row, head, key_column, value_column, n_heads;
    float scale, softcap;
    const float *bias;
    int bias_rows;
};

DEVICE Query query_of(const Pool &pool, int head, int n_heads, int n_kv_heads) {
    const int kv_head = head / (n_heads / n_kv_heads);
    return {0, head, kv_head * HEAD_DIM, kv_head * (pool.v_width / n_kv_heads), n_heads};
}

struct Tier { Pool pool; Group state; int is_recent; };  /* the store, or a tail of recent rows */

/* Of a thread's own value: its column among those of all heads, or -1 for none. */
DEVICE int own_column(int i) {
    const int at = i % TURN_VALUES * THREADS + THREAD, column = i / TURN_VALUES * PART_HEADS * V_DIM + at;
    return at < PART_HEADS * V_DIM && column < HEADS * V_DIM ? column : -1;
}

DEVICE void load_query(Work &w, const float *q) {
    for (int i = THREAD; i < HEADS * HEAD_DIM; i += THREADS) w.query[i] = q[i];
}

DEVICE float score_of(const Query &q, float product, int key, int head) {
    const int distance = q.state_row - key, last = q.bias_rows - 1;
    const float bias = q.bias ? q.bias[(distance < last ? distance : last) * q.n_heads + head] : 0.0f;
    if (q.softcap > 0.0f) return fma_(q.softcap, tanh_(product * q.scale / q.softcap), bias);
    return fma_(product, q.scale, bias);
}

/* Adds products of a unit of columns: sums[key, head] += queries[head] . keys[key]. */
DEVICE void add_products(const Work &w, int column, float (*keys)[UNIT], float (*sums)[HEADS]) {
    UNROLL
    for (int h = 0; h < HEADS; h++) {
        const float *query = w.query + h * HEAD_DIM + column;
        UNROLL
        for (int k = 0; k < LANE_KEYS; k++)
            UNROLL
            for (int i = 0; i < UNIT; i++) sums[k][h] = fma_(query[i], keys[k][i], sums[k][h]);
    }
}

/* The products of a lane's share of keys first, first + SLOTS, ... of a tile. A key behind it is the last one again. */
template <class Rows>
DEVICE void multiply_keys(const Work &w, const Query &q, const Pool &pool, int first, int n, float (*sums)[HEADS]) {
    const u8 *rows[LANE_KEYS];
    UNROLL
    for (int k = 0; k < LANE_KEYS; k++) {
        const int i = first + SLOTS * k;
        rows[k] = pool.keys + w.places[i < n ? i : n - 1] * Rows::bytes(pool.width);
    }
#if HEAD_DIM > 128
#pragma unroll 2  /* more loads at a time do not fit registers */
#endif
    for (int all = 0; all < KEY_UNITS; all += KEY_LANES) {
        const int unit = all + THREAD % KEY_LANES;
        if (KEY_UNITS % KEY_LANES && unit >= KEY_UNITS) continue;
        float keys[LANE_KEYS][UNIT];
        UNROLL
        for (int k = 0; k < LANE_KEYS; k++)
            Rows::template load<UNIT>(rows[k], q.key_column + unit * UNIT, keys[k]);
        add_products(w, unit * UNIT, keys, sums);
    }
}

/* The sum over the lanes of a key. */
DEVICE float product_of(float sum) {
    for (int mask = 1; mask < KEY_LANES; mask *= 2) sum = sum + shuffle_xor(sum, mask);
    return sum;
}

/* weights[key, head] = query . key for each key of the tile. */
template <class Rows> DEVICE void stage_products(Work &w, const Query &q, const Pool &pool, int n) {
    for (int first = THREAD / KEY_LANES; first < TILE; first += SLOTS * LANE_KEYS) {
        float sums[LANE_KEYS][HEADS] = {};
        multiply_keys<Rows>(w, q, pool, first, n, sums);
        UNROLL
        for (int j = 0; j < LANE_KEYS * HEADS; j++) {
            const int i = first + SLOTS * (j / HEADS), head = j % HEADS;
            const float product = product_of(sums[j / HEADS][head]);
            if (head % KEY_LANES == THREAD % KEY_LANES && i < n) w.weights[i * HEADS + head] = product;
        }
    }
}

/* Turns a head's products into weights relative to its highest score so far. A group of lanes has a head. The n keys
 * from key `start` on have places from `skip` on in their tile. */
DEVICE void weigh_keys(Work &w, const Query &q, int start, int skip, int n, Softmax &sum) {
    const int head = THREAD / GROUP_LANES, used = head < HEADS ? n : 0, first = (LANE - skip) & (GROUP_LANES - 1);
    float top = sum.top, tile_sum = 0.0f;
    for (int i = first; i < used; i += GROUP_LANES) {
        const float score = score_of(q, w.weights[i * HEADS + head], start + i, q.head + head);
        w.weights[i * HEADS + head] = score;
        top = max_(top, score);
    }
    for (int mask = 1; mask < GROUP_LANES; mask *= 2) top = max_(top, shuffle_xor(top, mask));
    for (int i = first; i < used; i += GROUP_LANES) {
        const float weight = exp_(w.weights[i * HEADS + head] - top);
        w.weights[i * HEADS + head] = weight;
        tile_sum = tile_sum + weight;
    }
    for (int mask = 1; mask < GROUP_LANES; mask *= 2) tile_sum = tile_sum + shuffle_xor(tile_sum, mask);
    const float fade = exp_(sum.top - top);
    if (head < HEADS && LANE == 0) w.fades[head] = fade;
    sum = {top, fma_(sum.sum, fade, tile_sum)};
}

/* sums[head] = the weighted values of the thread's share of a tile, for its unit of columns. */
template <class Rows>
DEVICE void weigh_values(const Work &w, const Pool &pool, int column, int skip, int n, float (*sums)[VALUE_UNIT]) {
    const int begin = THREAD / VALUE_UNITS * SHARE_KEYS - skip, end = begin + SHARE_KEYS;
#pragma unroll 4
    for (int k = begin > 0 ? begin : 0; k < (end < n ? end : n); k++) {
        float values[VALUE_UNIT];
        const u8 *row = pool.values + w.places[k] * Rows::bytes(pool.v_width);
        Rows::template load<VALUE_UNIT>(row, column + THREAD % VALUE_UNITS * VALUE_UNIT, values);
        UNROLL
        for (int h = 0; h < HEADS; h++)
            UNROLL
            for (int i = 0; i < VALUE_UNIT; i++) sums[h][i] = fma_(w.weights[k * HEADS + h], values[i], sums[h][i]);
    }
}

/* Puts the thread's shares of the heads of a turn in place. */
DEVICE void put_shares(Work &w, int turn, const float (*sums)[VALUE_UNIT]) {
    const int share = THREAD / VALUE_UNITS, column = THREAD % VALUE_UNITS * VALUE_UNIT;
    UNROLL
    for (int h = 0; h < PART_HEADS; h++)
        for (int i = 0; i < VALUE_UNIT && share < SHARES && turn * PART_HEADS + h < HEADS; i++)
            w.parts[(h * SHARES + share) * V_DIM + column + i] = sums[turn * PART_HEADS + h][i];
}

/* out = out * fade + the shares in order, of a thread's own value of a turn. */
DEVICE void add_shares(const Work &w, int turn, int column, float &out) {
    const int head = column / V_DIM;
    const float *part = w.parts + (head - turn * PART_HEADS) * SHARES * V_DIM + column % V_DIM;
    out = out * w.fades[head];
    for (int i = 0; i < SHARES; i++) out = out + part[i * V_DIM];
}

DEVICE void stage_products(Work &w, const Query &q, const Tier &tier, int n) {
    if (TAIL_ROWS && tier.is_recent) stage_products<HalfRows>(w, q, tier.pool, n);
    else stage_products<KvRows>(w, q, tier.pool, n);
}

/* Adds the weighted values of a tile to the thread's own values. */
DEVICE void add_values(Work &w, const Query &q, const Tier &tier, int skip, int n, float *out) {
    float sums[HEADS][VALUE_UNIT] = {};
    if (TAIL_ROWS && tier.is_recent) weigh_values<HalfRows>(w, tier.pool, q.value_column, skip, n, sums);
    else weigh_values<KvRows>(w, tier.pool, q.value_column, skip, n, sums);
    UNROLL
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn) SYNC();  /* threads may still read the shares of the turn before */
        put_shares(w, turn, sums);
        SYNC();
        UNROLL
        for (int i = turn * TURN_VALUES; i < (turn + 1) * TURN_VALUES; i++)
            if (own_column(i) >= 0) add_shares(w, turn, own_column(i), out[i]);
    }
}

/* Adds keys [first, end) of a tier. */
DEVICE void attend(Work &w, const Query &q, const Tier &tier, Keys keys, Softmax &sum, float *out) {
    for (int first = keys.first, n; first < keys.end; first += n) {
        const int skip = first % TILE, left = keys.end - first;
        n = left < TILE - skip ? left : TILE - skip;
        SYNC();  /* threads may still read the tile before */
        if (THREAD < n) w.places[THREAD] = pool_row(tier.pool, tier.state, first + THREAD);
        SYNC();
        stage_products(w, q, tier, n);
        SYNC();
        weigh_keys(w, q, first, skip, n, sum);
        SYNC();
        add_values(w, q, tier, skip, n, out);
    }
}

/* The first key that a row reads from the tail. */
DEVICE int border_of(int state_row, Keys keys) {
    const int over = state_row + 1 - TAIL_ROWS, border = over > 0 ? over / TAIL_BATCH * TAIL_BATCH : 0;
    return border < keys.first ? keys.first : border > keys.end ? keys.end : border;
}

/* The keys of a split that a row reads from a tier. */
DEVICE Keys read_from(const Tier &tier, int state_row, Keys keys) {
    const int border = TAIL_ROWS ? border_of(state_row, keys) : keys.end, kept = (int)tier.state.write;
    if (!tier.is_recent) return {keys.first, border};
    return {border > kept ? border : kept, keys.end};
}

struct Tiers { Tier all[TAIL_ROWS ? 2 : 1]; };
DEVICE Tiers tiers_of(Step step, u32 sequence, const Pool &state, const Pool &tail) {
    Tiers tiers = {{{state, group_at(step, sequence, state.group), 0}}};
    if (TAIL_ROWS) tiers.all[TAIL_ROWS ? 1 : 0] = {tail, group_at(step, sequence, tail.group), 1};
    return tiers;
}

/* The sums of a split's keys: w.sums of each head, and the thread's own values in `out`. */
DEVICE void attend_split(Work &w, const Query &q, const Tiers &tiers, Keys keys, float *out) {
    Softmax sum = {LOWEST, 0.0f};
#pragma unroll 1
    for (const Tier &tier : tiers.all) attend(w, q, tier, read_from(tier, q.state_row, keys), sum, out);
    if (LANE == 0 && THREAD / GROUP_LANES < HEADS) w.sums[THREAD / GROUP_LANES] = sum;
    SYNC();
}

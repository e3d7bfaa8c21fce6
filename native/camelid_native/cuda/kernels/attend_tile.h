/* attend_tile: softmax sums of QUERIES queries, TILE_ROWS consecutive rows of a sequence by HEADS heads, which share
 * each load of a tile of keys and values. Every sum has the order of attend.h. A thread has the products of four
 * queries with four keys, and the values of CELL queries by four columns in each slice of SLICE_COLS. Queries behind
 * the last row are its own again, and are not written. */
#pragma once
#include "attend.h"

enum {
    QUERIES = 32,
    PITCH = QUERIES + 4,  /* floats of a column of queries, so that the columns of a unit are in other banks */
    TILE_ROWS = QUERIES / HEADS,
    STAGE_COLS = 32,  /* columns of keys and queries in shared memory: two units of either lane of a pair */
    STAGE_UNITS = STAGE_COLS / UNIT,
    SLICE_COLS = V_DIM > 64 ? 128 : 64,
    SLICES = (V_DIM + SLICE_COLS - 1) / SLICE_COLS,
    CELL = SLICE_COLS / 32,
    STAGE_KEYS = TILE * STAGE_COLS / SLICE_COLS,  /* keys whose values are in shared memory */
    WARPS = THREADS / GROUP_LANES,
    FAR = 0x7FFFFFFF,  /* a key behind all others */
    WARP_SUMS = GROUP_LANES / WARPS  /* sums of weights that a group of lanes adds for each query */
};

struct alignas(16) TileWork {
    float weights[TILE * QUERIES], stage[TILE * STAGE_COLS], queries[STAGE_COLS * PITCH];
    float tops[WARPS * QUERIES], parts[WARPS * QUERIES], fades[QUERIES];
    Softmax sums[QUERIES], totals[QUERIES];
    Fades joins[QUERIES];
    Keys seen[QUERIES], used[QUERIES];  /* all keys of a query, and its places in the tile */
    int state_rows[QUERIES];
    u32 places[TILE];
    const float *q[QUERIES];
    float *y[QUERIES];  /* null of a query that is not written */
};

static_assert(THREADS == 2 * TILE, "a thread places units of one key");
typedef float (*Slices)[CELL][4];  /* a thread's sums of values */

/* Groups of lanes have 4 by 8 units: of queries, and of keys or columns. */
template <int SIZE> DEVICE int query_unit() {
    const int groups = QUERIES / SIZE / 4;
    return (LANE / 8 + THREAD / GROUP_LANES % groups * 4) * SIZE;
}
template <int SIZE> DEVICE int other_unit() {
    const int groups = QUERIES / SIZE / 4;
    return (LANE % 8 + THREAD / GROUP_LANES / groups * 8) * 4;
}

DEVICE void load4(const float *from, float *v) {
    const uint4 all = load16(from);
    v[0] = as_float(all.x), v[1] = as_float(all.y), v[2] = as_float(all.z), v[3] = as_float(all.w);
}

/* Keys of a pair's odd units lie 16 places on, so that neighbouring units of a key are in other banks. */
DEVICE int key_place(int key, int parity) { return key ^ parity * 16; }
DEVICE bool is_unit(int unit) { return KEY_UNITS % (STAGE_UNITS / 2 * KEY_LANES) == 0 || unit < KEY_UNITS; }

/* Places units from, from + 1, and those KEY_LANES on, of queries and keys, by column. */
template <class Kv> DEVICE void stage_units_of(TileWork &w, const Query &q, const Pool &pool, int from) {
    const int parity = THREAD % 2, key = THREAD / 2, query = THREAD / UNIT % QUERIES;
    const u8 *row = pool.keys + w.places[key] * Kv::bytes(pool.width);
    float *keys = w.stage + parity * UNIT * TILE + key_place(key, parity);
    UNROLL
    for (int i = 0; i < STAGE_UNITS / 2; i++) {
        const int unit = from + parity + i * KEY_LANES;
        float values[UNIT];
        if (!is_unit(unit)) continue;
        Kv::template load<UNIT>(row, q.key_column + unit * UNIT, values);
        for (int c = 0; c < UNIT; c++) keys[(2 * UNIT * i + c) * TILE] = values[c];
    }
    const float *queries = w.q[query] + THREAD % UNIT;
    UNROLL
    for (int i = THREAD / (UNIT * QUERIES); i < STAGE_UNITS; i += THREADS / (UNIT * QUERIES)) {
        const int unit = from + i % 2 + i / 2 * KEY_LANES;
        if (is_unit(unit)) w.queries[(i * UNIT + THREAD % UNIT) * PITCH + query] = queries[unit * UNIT];
    }
}

DEVICE void stage_units(TileWork &w, const Query &q, const Tier &tier, int from) {
    if (TAIL_ROWS && tier.is_recent) stage_units_of<HalfRows>(w, q, tier.pool, from);
    else stage_units_of<KvRows>(w, q, tier.pool, from);
}

/* Adds a staged unit's products of four queries by four keys. */
DEVICE void add_unit(const float *queries, const float *keys, float (*sums)[4]) {
    UNROLL
    for (int c = 0; c < UNIT; c++) {
        float q[4], k[4];
        load4(queries + c * PITCH, q);
        load4(keys + c * TILE, k);
        UNROLL
        for (int j = 0; j < 16; j++) sums[j / 4][j % 4] = fma_(q[j % 4], k[j / 4], sums[j / 4][j % 4]);
    }
}

/* The products of two neighbouring lanes with the thread's keys, if they are of a group with one of `any`. */
DEVICE void multiply_pair(TileWork &w, const Query &q, const Tier &tier, int lane, Keys any, float (*sums)[4]) {
    const int group = other_unit<4>() / GROUP_LANES * GROUP_LANES;
    const bool is_used = group < any.end && group + GROUP_LANES > any.first;
    float odd[4][4] = {};
#pragma unroll 1
    for (int from = lane; from < KEY_UNITS; from += STAGE_UNITS / 2 * KEY_LANES) {
        SYNC();  /* threads may still read the units before */
        stage_units(w, q, tier, from);
        SYNC();
#pragma unroll 1
        for (int i = 0; is_used && i < STAGE_UNITS / 2; i++) {
            const int unit = from + i * KEY_LANES;
            const float *queries = w.queries + query_unit<4>() + 2 * UNIT * i * PITCH;
            const float *keys = w.stage + 2 * UNIT * i * TILE;
            if (is_unit(unit)) add_unit(queries, keys + other_unit<4>(), sums);
            if (!is_unit(unit + 1)) continue;
            add_unit(queries + UNIT * PITCH, keys + UNIT * TILE + key_place(other_unit<4>(), 1), odd);
        }
    }
    UNROLL
    for (int j = 0; j < 16; j++) sums[j / 4][j % 4] = sums[j / 4][j % 4] + odd[j / 4][j % 4];
}

/* weights[key, query] = query . key for the keys of a tile. The sum of the first pair of lanes waits there. */
DEVICE void multiply_tile(TileWork &w, const Query &q, const Tier &tier, Keys any) {
    static_assert(KEY_LANES == 4, "two pairs");
#pragma unroll 1
    for (int lane = 0; lane < KEY_LANES; lane += 2) {
        float pair[4][4] = {};
        multiply_pair(w, q, tier, lane, any, pair);
        UNROLL
        for (int j = 0; j < 16; j++) {
            float *to = w.weights + (other_unit<4>() + j / 4) * QUERIES + query_unit<4>() + j % 4;
            *to = lane ? *to + pair[j / 4][j % 4] : pair[j / 4][j % 4];
        }
    }
}

/* Key `i` of sum `sum` of the weights of a thread, of WARP_SUMS. */
DEVICE int weight_place(int sum, int i) { return THREAD / GROUP_LANES * WARP_SUMS + sum + i * GROUP_LANES; }
DEVICE bool holds(Keys keys, int k) { return keys.first <= k && k < keys.end; }

/* Turns products into scores where query LANE sees the key. Returns the highest. */
DEVICE float put_scores(TileWork &w, const Query &q, int tile) {
    const Keys used = w.used[LANE];
    Query own = q;
    own.state_row = w.state_rows[LANE];
    float top = LOWEST;
#pragma unroll 1
    for (int i = 0; i < TILE / WARPS; i++) {
        const int k = weight_place(i % WARP_SUMS, i / WARP_SUMS), at = k * QUERIES + LANE;
        if (!holds(used, k)) continue;
        w.weights[at] = score_of(own, w.weights[at], tile + k, q.head + LANE % HEADS);
        top = max_(top, w.weights[at]);
    }
    return top;
}

/* Turns scores into weights. Returns the sum of the thread's part of them. */
DEVICE float put_weights(TileWork &w, float top) {
    const Keys used = w.used[LANE];
    float sums[WARP_SUMS] = {};
#pragma unroll 1
    for (int i = 0; i < TILE / GROUP_LANES; i++)
        UNROLL
        for (int sum = 0; sum < WARP_SUMS; sum++) {
            const int k = weight_place(sum, i), at = k * QUERIES + LANE;
            if (!holds(used, k)) continue;
            w.weights[at] = exp_(w.weights[at] - top);
            sums[sum] = sums[sum] + w.weights[at];
        }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Turns products into weights relative to the highest scores so far. */
DEVICE void weigh_tile(TileWork &w, const Query &q, int tile) {
    w.tops[THREAD] = put_scores(w, q, tile);
    SYNC();
    const Softmax sum = w.sums[LANE];
    float top = sum.top;
    for (int i = 0; i < WARPS; i++) top = max_(top, w.tops[i * QUERIES + LANE]);
    w.parts[THREAD] = put_weights(w, top);
    SYNC();
    if (THREAD >= QUERIES) return;
    const float *p = w.parts + THREAD, fade = exp_(sum.top - top);
    const float low = (p[0] + p[QUERIES]) + (p[2 * QUERIES] + p[3 * QUERIES]);
    const float high = (p[4 * QUERIES] + p[5 * QUERIES]) + (p[6 * QUERIES] + p[7 * QUERIES]);
    w.fades[THREAD] = fade;
    w.sums[THREAD] = {top, fma_(sum.sum, fade, low + high)};
}

/* Places the values of keys from place `at` on, columns from `slice` on: [STAGE_KEYS, SLICE_COLS]. */
template <class Kv> DEVICE void stage_values_of(TileWork &w, const Query &q, const Pool &pool, int at, int slice) {
    for (int item = THREAD; item < STAGE_KEYS * SLICE_COLS / UNIT; item += THREADS) {
        const int key = item / (SLICE_COLS / UNIT), column = item % (SLICE_COLS / UNIT) * UNIT;
        if (slice + column >= V_DIM) continue;
        const u8 *row = pool.values + w.places[at + key] * Kv::bytes(pool.v_width);
        Kv::template load<UNIT>(row, q.value_column + slice + column, w.stage + key * SLICE_COLS + column);
    }
}

DEVICE void stage_values(TileWork &w, const Query &q, const Tier &tier, int at, int slice) {
    if (TAIL_ROWS && tier.is_recent) stage_values_of<HalfRows>(w, q, tier.pool, at, slice);
    else stage_values_of<KvRows>(w, q, tier.pool, at, slice);
}

/* Adds key k, which all queries see, or those that see it. */
template <bool ALL> DEVICE void add_key(const TileWork &w, int k, int at, float (*sums)[4]) {
    float values[4];
    load4(w.stage + (k - at) * SLICE_COLS + other_unit<CELL>(), values);
    UNROLL
    for (int j = 0; j < CELL; j++) {
        const int query = query_unit<CELL>() + j;
        if (!ALL && !holds(w.used[query], k)) continue;
        const float weight = w.weights[k * QUERIES + query];
        for (int c = 0; c < 4; c++) sums[j][c] = fma_(weight, values[c], sums[j][c]);
    }
}

/* Adds a share to the sums of the queries that see a key of the tile, and begins the next one. */
template <bool ALL> DEVICE void add_share(const TileWork &w, float (*share)[4], float (*out)[4]) {
    UNROLL
    for (int j = 0; j < CELL; j++) {
        const Keys used = w.used[query_unit<CELL>() + j];
        UNROLL
        for (int c = 0; c < 4; c++) {
            if (ALL || used.first < used.end) out[j][c] = out[j][c] + share[j][c];
            share[j][c] = 0.0f;
        }
    }
}

/* Adds the values of keys at places [any.first, any.end), in columns from `slice` on. */
template <bool ALL>
DEVICE void add_slice(TileWork &w, const Query &q, const Tier &tier, Keys any, int slice, float (*out)[4]) {
    enum { STEP = !ALL ? 1 : SHARE_KEYS % 8 ? 4 : 8 };
    float share[CELL][4] = {};
    for (int j = 0; j < CELL; j++)
        for (int c = 0; c < 4; c++) out[j][c] = out[j][c] * w.fades[query_unit<CELL>() + j];
#pragma unroll 1
    for (int at = 0; at < TILE; at += STAGE_KEYS) {
        const bool is_used = at < any.end && at + STAGE_KEYS > any.first;
        SYNC();  /* threads may still read the values before */
        if (is_used) stage_values(w, q, tier, at, slice);
        SYNC();
#pragma unroll 1
        for (int k = at; k < at + STAGE_KEYS; k += STEP) {
            if (k && k % SHARE_KEYS == 0) add_share<ALL>(w, share, out);
            UNROLL
            for (int i = k; is_used && i < k + STEP; i++) add_key<ALL>(w, i, at, share);
        }
    }
    add_share<ALL>(w, share, out);
}

DEVICE void add_tile(TileWork &w, const Query &q, const Tier &tier, Keys any, bool is_all, Slices out) {
    UNROLL
    for (int i = 0; i < SLICES; i++) {
        if (is_all) add_slice<true>(w, q, tier, any, i * SLICE_COLS, out[i]);
        else add_slice<false>(w, q, tier, any, i * SLICE_COLS, out[i]);
    }
}

DEVICE int least(int v) {
    for (int mask = 1; mask < QUERIES; mask *= 2) {
        const int other = shuffle_xor(v, mask);
        v = other < v ? other : v;
    }
    return v;
}

/* The keys between the first and the last of all queries' keys, and those that all queries see. */
DEVICE Keys any_of(Keys own) {
    const bool is_none = own.first >= own.end;
    return {least(is_none ? FAR : own.first), -least(is_none ? 0 : -own.end)};
}
DEVICE Keys all_of(Keys own) { return {-least(-own.first), least(own.end)}; }

DEVICE int clamped(int v, int low, int high) { return v < low ? low : v > high ? high : v; }

/* Places the tile's pool rows and the keys of its queries. A place without a key has its neighbour's. */
DEVICE void place_tile(TileWork &w, Tier tier, int tile, Keys any, Keys own) {
    if (THREAD < TILE)
        w.places[THREAD] = pool_row(tier.pool, tier.state, tile + clamped(THREAD, any.first, any.end - 1));
    if (THREAD < QUERIES) w.used[THREAD] = own;
}

/* Adds the keys of a tier: of query LANE those in `own`. */
DEVICE void attend_tier(TileWork &w, const Query &q, const Tier &tier, Keys own, Slices out) {
    const Keys any = any_of(own), all = all_of(own);
    for (int tile = any.first / TILE * TILE; tile < any.end; tile += TILE) {
        const Keys here = {clamped(any.first - tile, 0, TILE), clamped(any.end - tile, 0, TILE)};
        SYNC();  /* threads may still read the tile before */
        place_tile(w, tier, tile, here, {clamped(own.first - tile, 0, TILE), clamped(own.end - tile, 0, TILE)});
        SYNC();
        multiply_tile(w, q, tier, here);
        SYNC();
        weigh_tile(w, q, tile);
        SYNC();
        add_tile(w, q, tier, here, all.first <= tile && tile + TILE <= all.end, out);
    }
}

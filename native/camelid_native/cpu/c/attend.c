/* Attention of queries over one chunk of keys: scores, softmax, weighted sum of values.
 *
 * The code is written once for all key types and all numbers of queries per read; `attend_kernels` has one
 * function per pair. A query's result has the same bits in each function: a score sums products per lane,
 * then the lanes in a fixed order; values are added key by key. */
#include "attend.h"
#include "blocks.h"
#include "lanes.h"
#include "run.h"
#include "vmath.h"

enum { KEYS_F32 = 0, KEYS_F16 = 1, KEYS_Q4_0 = 2, KEYS_Q8_0 = 8 };   /* GGUF type ids */
enum { SCORES = LANES > 8 ? LANES : 8 };         /* scores summed at once */
enum { ROOM = CHUNK_KEYS + SCORES };             /* scores of a chunk, with unused ones at the end */
enum { VALUE_SUMS = LANES > 8 ? 16 : 8 };        /* vectors of value sums held in registers */
static const float LOWEST = -3.402823466e38f;

typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

/* A block's scale in every lane. */
INLINE vf scale_of(uint16_t half) {
    const halves copies = half - (halves){0};
    return vf_half((const uint16_t *)&copies);
}

/* Values i .. i + LANES of a stored row; i is a multiple of LANES. */
INLINE vf stored_values(uint32_t type, const uint8_t *row, uint32_t i) {
    if (type == KEYS_F32) return vf_load((const float *)row + i);
    if (type == KEYS_F16) return vf_half((const uint16_t *)row + i);
    if (type == KEYS_Q8_0) {
        const block_q8_0 *block = (const block_q8_0 *)row + i / 32;
        return vi_float(vi_s8(block->q + i % 32)) * scale_of(block->d);
    }
    const block_q4_0 *block = (const block_q4_0 *)row + i / 32;
    vi codes = vi_u8(block->q + i % 16) >> (i % 32 < 16 ? 0 : 4) & 15;
    return vi_float(codes - 8) * scale_of(block->d);
}

/* Position in the prefetch of the next chunk's rows. */
typedef struct { uint32_t row, line; } ahead_cursor;

/* Prefetches `ahead_pace` cache lines of the next chunk, in address order: hardware prefetchers do not detect
 * the pattern of one head in each row. */
INLINE void fetch_ahead(const chunk_rows *rows, ahead_cursor *next) {
    enum { INTO_SECOND_LEVEL = 2 };
    for (uint32_t i = 0; i < rows->ahead_pace && next->row < rows->ahead_end; i++) {
        __builtin_prefetch(rows->ahead[next->row] + rows->ahead_at + next->line * CACHE_LINE, 0,
                           INTO_SECOND_LEVEL);
        if (++next->line == rows->ahead_lines) next->line = 0, next->row++;
    }
}

/* Dot products of queries with keys [start, end). The last key's products may repeat after `end`. */
INLINE void dot_keys(uint32_t type, uint32_t n, const attend_how *how, const attend_query *queries,
                     const chunk_rows *keys, uint32_t start, uint32_t end, float (*scores)[ROOM]) {
    enum { SIDE_BY_SIDE = 4 };
    const uint32_t n_keys = SCORES / (n == 3 ? 4 : n), step = n_keys < SIDE_BY_SIDE ? n_keys : SIDE_BY_SIDE;
    ahead_cursor next = {keys->ahead_start, 0};
    for (uint32_t at = start; at < end; at += n_keys) {
        vf sums[SCORES] = {0};
        UNROLLED for (uint32_t first = 0; first < n_keys; first += step) {
            const uint8_t *rows[SIDE_BY_SIDE];
            UNROLLED for (uint32_t k = 0; k < step; k++) {
                uint32_t key = at + first + k;
                rows[k] = keys->rows[key < end ? key : end - 1];
            }
            for (uint32_t c = 0; c < how->k_vectors; c++) {
                vf q[MOST_QUERIES];
                UNROLLED for (uint32_t i = 0; i < n; i++) q[i] = vf_load(queries[i].q + c * LANES);
                UNROLLED for (uint32_t k = 0; k < step; k++) {
                    vf key = stored_values(type, rows[k], keys->column + c * LANES);
                    UNROLLED for (uint32_t i = 0; i < n; i++) {
                        vf *sum = &sums[i * n_keys + first + k];
                        *sum = vf_fma(q[i], key, *sum);
                    }
                }
            }
        }
        for (uint32_t j = at; j < at + n_keys; j++) fetch_ahead(keys, &next);
        float found[SCORES];
        UNROLLED for (uint32_t i = 0; i < SCORES; i += LANES) vf_store(found + i, lane_sums(sums + i));
        UNROLLED for (uint32_t i = 0; i < n; i++)
            memcpy(scores[i] + at, found + i * n_keys, n_keys * sizeof(float));
    }
}

/* Adds the bias by distance to the scores of keys [start, end). `first` is the chunk's first key. */
static void add_bias(const attend_how *how, const attend_query *query, int32_t first, uint32_t start,
                     uint32_t end, float *scores) {
    for (uint32_t j = start; j < end; j++) {
        int32_t distance = how->bias_sign * (first + (int32_t)j - (int32_t)query->row);
        distance = distance < how->bias_low ? how->bias_low : distance;
        distance = distance > how->bias_high ? how->bias_high : distance;
        scores[j] += how->bias[(uint64_t)(how->bias_row + distance) * how->n_heads + query->head];
    }
}

/* Turns dot products into scores. Masked keys in the same vectors as keys [start, end) get -infinity. */
static void make_scores(const attend_how *how, const attend_query *query, int32_t first, uint32_t start,
                        uint32_t end, float *scores) {
    const uint32_t low = start / LANES * LANES, high = (end + LANES - 1) / LANES * LANES;
    for (uint32_t j = low; j < start; j++) scores[j] = 0.0f;
    for (uint32_t j = end; j < high; j++) scores[j] = 0.0f;
    for (uint32_t j = low; j < high; j += LANES) {
        vf s = vf_load(scores + j) * how->scale;
        if (how->softcap != 0.0f) s = how->softcap * vf_tanh(s / how->softcap);
        vf_store(scores + j, s);
    }
    if (how->bias) add_bias(how, query, first, start, end, scores);
    for (uint32_t j = low; j < start; j++) scores[j] = -__builtin_inff();
    for (uint32_t j = end; j < high; j++) scores[j] = -__builtin_inff();
}

/* Factors that bring the total so far and a new partial result to a common largest score. */
typedef struct { vf before, part; } merge_factors;

INLINE merge_factors merge_tops(float *tops, vf top) {
    const vf before = vf_load(tops);
    const vi is_lower = before < top;
    vf falls = vf_exp_weight(vf_min(before, top) - vf_max(before, top));
    vf_store(tops, vf_pick(is_lower, top, before));
    return (merge_factors){vf_pick(is_lower, falls, vf_set(1.0f)), vf_pick(is_lower, vf_set(1.0f), falls)};
}
INLINE void merge_vector(float *total, vf part, merge_factors factors) {
    vf_store(total, vf_fma(part, factors.part, vf_load(total) * factors.before));
}

/* Turns scores of n queries into weights, 1 for each query's largest score, and merges weight sums and
 * largest scores into the totals. The queries are interleaved to hide the latency of the exponentials. */
INLINE void weigh_keys(uint32_t n, const attend_how *how, const attend_query *queries, uint32_t start,
                       uint32_t end, float (*scores)[ROOM], merge_factors *factors) {
    const uint32_t low = start / LANES * LANES;
    vf tops[MOST_QUERIES], sums[MOST_QUERIES] = {0};
    UNROLLED for (uint32_t i = 0; i < n; i++) tops[i] = vf_set(LOWEST);
    for (uint32_t j = low; j < end; j += LANES)
        UNROLLED for (uint32_t i = 0; i < n; i++) tops[i] = vf_max(vf_load(scores[i] + j), tops[i]);
    UNROLLED for (uint32_t i = 0; i < n; i++) tops[i] = vf_top_all(tops[i]);
    for (uint32_t j = low; j < end; j += LANES)
        UNROLLED for (uint32_t i = 0; i < n; i++) {
            const vf weights = vf_exp_weight(vf_load(scores[i] + j) - tops[i]);
            vf_store(scores[i] + j, weights);
            sums[i] += weights;
        }
    UNROLLED for (uint32_t i = 0; i < n; i++) {
        float *total = queries[i].total + how->v_vectors * LANES;
        factors[i] = merge_tops(total + LANES, tops[i]);
        merge_vector(total, sums[i], factors[i]);
    }
}

/* One function per number of queries, shared by all key types. */
#define WEIGH(n)                                                                                          \
    static void weigh_keys_##n(const attend_how *how, const attend_query *queries, uint32_t start,        \
                               uint32_t end, float (*scores)[ROOM], merge_factors *factors) {             \
        weigh_keys(n, how, queries, start, end, scores, factors);                                         \
    }
WEIGH(1) WEIGH(2) WEIGH(3) WEIGH(4)

typedef void weigh_kernel(const attend_how *how, const attend_query *queries, uint32_t start, uint32_t end,
                          float (*scores)[ROOM], merge_factors *factors);
static weigh_kernel *const weigh_kernels[] = {weigh_keys_1, weigh_keys_2, weigh_keys_3, weigh_keys_4};

/* Merges the weighted sum of values [start, end) into the totals: `width` vectors from vector c on. */
INLINE void add_columns(uint32_t type, uint32_t n, uint32_t width, const attend_query *queries,
                        const merge_factors *factors, const chunk_rows *values, uint32_t start, uint32_t end,
                        const float (*weights)[ROOM], uint32_t c) {
    vf sums[MOST_QUERIES * VALUE_SUMS] = {0};
    ahead_cursor next = {values->ahead_start, 0};
    for (uint32_t j = start; j < end; j++) {
        if (c == 0) fetch_ahead(values, &next);
        UNROLLED for (uint32_t v = 0; v < width; v++) {
            vf value = stored_values(type, values->rows[j], values->column + (c + v) * LANES);
            UNROLLED for (uint32_t i = 0; i < n; i++)
                sums[i * width + v] = vf_fma(vf_set(weights[i][j]), value, sums[i * width + v]);
        }
    }
    UNROLLED for (uint32_t i = 0; i < n; i++)
        UNROLLED for (uint32_t v = 0; v < width; v++)
            merge_vector(queries[i].total + (c + v) * LANES, sums[i * width + v], factors[i]);
}

/* Attention of n queries that see the same keys [start, end) of a chunk. */
INLINE void attend(uint32_t type, uint32_t n, const attend_how *how, const attend_query *queries,
                   const chunk_rows *keys, const chunk_rows *values, uint32_t first, uint32_t start,
                   uint32_t end) {
    float scores[MOST_QUERIES][ROOM];
    merge_factors factors[MOST_QUERIES];
    /* Value vectors per pass: enough independent sums to hide the latency of the FMA. */
    const uint32_t most = VALUE_SUMS / (n == 1 ? 2 : n == 3 ? 4 : n), few = most / 2;
    dot_keys(type, n, how, queries, keys, start, end, scores);
    for (uint32_t i = 0; i < n; i++) make_scores(how, &queries[i], (int32_t)first, start, end, scores[i]);
    weigh_kernels[n - 1](how, queries, start, end, scores, factors);
    uint32_t c = 0;
    for (; c + most <= how->v_vectors; c += most)
        add_columns(type, n, most, queries, factors, values, start, end, scores, c);
    for (; c + few <= how->v_vectors; c += few)
        add_columns(type, n, few, queries, factors, values, start, end, scores, c);
    for (; c < how->v_vectors; c++) add_columns(type, n, 1, queries, factors, values, start, end, scores, c);
}

typedef void attend_kernel(const attend_how *how, const attend_query *queries, const chunk_rows *keys,
                           const chunk_rows *values, uint32_t first, uint32_t start, uint32_t end);
#define ATTEND(type, n)                                                                                   \
    static void attend_##type##_##n(const attend_how *how, const attend_query *queries,                   \
                                    const chunk_rows *keys, const chunk_rows *values, uint32_t first,     \
                                    uint32_t start, uint32_t end) {                                       \
        attend(type, n, how, queries, keys, values, first, start, end);                                   \
    }
#define ATTEND_TYPE(type) ATTEND(type, 1) ATTEND(type, 2) ATTEND(type, 3) ATTEND(type, 4)
ATTEND_TYPE(KEYS_F32)
ATTEND_TYPE(KEYS_F16)
ATTEND_TYPE(KEYS_Q4_0)
ATTEND_TYPE(KEYS_Q8_0)

#define ATTEND_ROW(type) [type] = {attend_##type##_1, attend_##type##_2, attend_##type##_3, attend_##type##_4}
static attend_kernel *const attend_kernels[][MOST_QUERIES] = {
    ATTEND_ROW(KEYS_F32), ATTEND_ROW(KEYS_F16), ATTEND_ROW(KEYS_Q4_0), ATTEND_ROW(KEYS_Q8_0),
};

/* Sets a total to zero keys. Sums begin at -0, as -0 + x is x for every x, including +0 and -0. */
static void clear_total(const attend_how *how, float *total) {
    for (uint32_t c = 0; c < how->v_vectors; c++) vf_store(total + c * LANES, vf_set(-0.0f));
    vf_store(total + how->v_vectors * LANES, vf_set(0.0f));
    vf_store(total + (how->v_vectors + 1) * LANES, vf_set(LOWEST));
}

/* Merges the partial result of a later chunk. */
static void merge_totals(const attend_how *how, float *total, const float *part) {
    const uint32_t sums = how->v_vectors * LANES;
    merge_factors factors = merge_tops(total + sums + LANES, vf_load(part + sums + LANES));
    for (uint32_t c = 0; c <= sums; c += LANES) merge_vector(total + c, vf_load(part + c), factors);
}

/* y = weighted mean of the values. An attention sink adds a score without a value. */
static void finish_total(const attend_how *how, const float *total, const float *sink, float *y, uint32_t n) {
    const float *sums = total + how->v_vectors * LANES, top = sums[LANES];
    const vf most = vf_set(sink && *sink > top ? *sink : top);
    vf share = vf_exp(top - most), sum = vf_sum(vf_load(sums)) * share;
    if (sink) sum += vf_exp(*sink - most);
    share /= sum;
    for (uint32_t c = 0; c < n; c += LANES) {
        vf means = vf_load(total + c) * share;
        memcpy(y + c, &means, (n - c < LANES ? n - c : LANES) * sizeof(float));
    }
}

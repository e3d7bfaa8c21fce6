/* attend_causal and attend_back: attention among the rows of a sequence in the step, and its gradient.
 *
 * Scores are computed anew in attend_back; `stats` has each row's log-sum-exp and, behind it, the sum of
 * probability times its gradient (FlashAttention, arXiv 2205.14135, appendix B). */
#include "parts.h"
#include "run.h"
#include "vmath.h"

enum { CAUSAL_Y, CAUSAL_STATS, CAUSAL_Q, CAUSAL_K, CAUSAL_V };
enum { BACK_DQ, BACK_DK, BACK_DV, BACK_STATS, BACK_Q, BACK_K, BACK_V, BACK_DY_ROWS };
enum { BACK_ARRAYS = 4 };
enum { CAUSAL_N_HEADS, CAUSAL_N_KV_HEADS, CAUSAL_SCALE, CAUSAL_WINDOW, CAUSAL_SOFTCAP };

typedef struct {
    uint32_t n_heads, n_kv_heads, group, window, q_dim, v_dim;
    float scale, cap;
} causal;

static causal causal_of(const cam_op *op, const cam_view *q, const cam_view *v) {
    causal a = {
        .n_heads = (uint32_t)op->attrs[CAUSAL_N_HEADS], .n_kv_heads = (uint32_t)op->attrs[CAUSAL_N_KV_HEADS],
        .window = (uint32_t)op->attrs[CAUSAL_WINDOW], .scale = (float)op->attrs[CAUSAL_SCALE],
        .cap = (float)op->attrs[CAUSAL_SOFTCAP],
    };
    a.group = a.n_heads / a.n_kv_heads, a.q_dim = q->cols / a.n_heads, a.v_dim = v->cols / a.n_kv_heads;
    return a;
}
INLINE const float *head_of(const cam_view *view, uint32_t row, uint32_t head, uint32_t dim) {
    return row_of(view, row) + (uint64_t)head * dim;
}

/* Rows of the sequence of a row: all of them, those that it sees, and those that see it. */
static cam_range sequence_of(const cam_run *run, uint32_t row) {
    const uint32_t *words = sequence_words(run, row_words(run, row)[ROW_SEQUENCE]);
    return (cam_range){words[SEQUENCE_FIRST_ROW], words[SEQUENCE_FIRST_ROW] + words[SEQUENCE_N_ROWS]};
}
static cam_range keys_of(const causal *a, const cam_run *run, uint32_t row) {
    uint32_t first = sequence_of(run, row).start;
    if (a->window && row + 1 > first + a->window) first = row + 1 - a->window;
    return (cam_range){first, row + 1};
}
static cam_range queries_of(const causal *a, const cam_run *run, uint32_t row) {
    uint32_t end = sequence_of(run, row).end;
    if (a->window && end > row + a->window) end = row + a->window;
    return (cam_range){row, end};
}

INLINE vf capped(const causal *a, vf score) {
    return a->cap > 0 ? vf_set(a->cap) * vf_tanh(score / vf_set(a->cap)) : score;
}
/* Derivative of the cap at a capped score. */
INLINE vf cap_slope(const causal *a, vf score) {
    const vf part = score / vf_set(a->cap > 0 ? a->cap : 1.0f);
    return a->cap > 0 ? 1.0f - part * part : vf_set(1.0f);
}

/* dots[i] = by * the product of `one` and head `head` of row `rows.start + i`; LANES rows at once. */
static void dot_rows_of(const cam_view *many, cam_range rows, uint32_t head, uint32_t dim, const float *one, float by,
                        float *dots) {
    for (uint32_t j = rows.start; j < rows.end; j += LANES) {
        const uint32_t n = rows.end - j < LANES ? rows.end - j : LANES;
        const float *at[LANES];
        for (uint32_t i = 0; i < LANES; i++) at[i] = head_of(many, j + (i < n ? i : 0), head, dim);
        vf sums[LANES] = {{0}};
        for (uint32_t c = 0; c < dim; c += LANES) {
            const vf part = vf_get(one + c, dim - c);
            for (uint32_t i = 0; i < LANES; i++) sums[i] = vf_fma(part, vf_get(at[i] + c, dim - c), sums[i]);
        }
        vf_put(dots + (j - rows.start), n, lane_sums(sums) * vf_set(by));
    }
}

/* y [dim] = or += the sum of weights[i] times head `head` of row `rows.start + i`. */
enum { WIDE = 4 };   /* vectors of y at once */
static void sum_rows_of(const cam_view *many, cam_range rows, uint32_t head, uint32_t dim, const float *weights,
                        float *y, int adds) {
    for (uint32_t c = 0; c < dim; c += WIDE * LANES) {
        vf sums[WIDE] = {{0}};
        const uint32_t left = dim - c;
        for (uint32_t i = 0; adds && i < WIDE && i * LANES < left; i++)
            sums[i] = vf_get(y + c + i * LANES, left - i * LANES);
        for (uint32_t j = rows.start; j < rows.end; j++) {
            const float *from = head_of(many, j, head, dim) + c;
            const vf weight = vf_set(weights[j - rows.start]);
            if (left >= WIDE * LANES)
                for (uint32_t i = 0; i < WIDE; i++) sums[i] = vf_fma(weight, vf_load(from + i * LANES), sums[i]);
            else
                for (uint32_t i = 0; i * LANES < left; i++)
                    sums[i] = vf_fma(weight, vf_get(from + i * LANES, left - i * LANES), sums[i]);
        }
        for (uint32_t i = 0; i < WIDE && i * LANES < left; i++)
            vf_put(y + c + i * LANES, left - i * LANES, sums[i]);
    }
}

/* Capped scores of one query against a range of keys, or of one key against a range of queries. */
static void score_rows(const causal *a, const cam_view *many, cam_range rows, uint32_t many_head,
                       const float *one, float *scores) {
    const uint32_t n = rows.end - rows.start;
    dot_rows_of(many, rows, many_head, a->q_dim, one, a->scale, scores);
    for (uint32_t i = 0; a->cap > 0 && i < n; i += LANES)
        vf_put(scores + i, n - i, capped(a, vf_get(scores + i, n - i)));
}

static float largest(const float *x, uint32_t n) {
    float top = x[0];
    for (uint32_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

static void attend_one(const cam_op *op, const causal *a, const cam_run *run, uint32_t row, uint32_t head,
                       float *scores) {
    const cam_range keys = keys_of(a, run, row);
    const uint32_t n = keys.end - keys.start, kv_head = head / a->group;
    score_rows(a, &op->views[CAUSAL_K], keys, kv_head, head_of(&op->views[CAUSAL_Q], row, head, a->q_dim), scores);
    const float top = largest(scores, n);
    for (uint32_t i = 0; i < n; i += LANES) {
        const vf e = vf_exp(vf_get(scores + i, n - i) - vf_set(top));
        vf_put(scores + i, n - i, e);
    }
    const float sum = sum_floats(scores, n);
    const vf by = vf_set(1.0f / sum);
    for (uint32_t i = 0; i < n; i += LANES) vf_put(scores + i, n - i, vf_get(scores + i, n - i) * by);
    float *y = row_of(&op->views[CAUSAL_Y], row) + (uint64_t)head * a->v_dim;
    sum_rows_of(&op->views[CAUSAL_V], keys, kv_head, a->v_dim, scores, y, 0);
    float *stats = row_of(&op->views[CAUSAL_STATS], row);
    stats[head] = top + f_log(sum), stats[a->n_heads + head] = 0.0f;
}

INLINE uint64_t causal_bytes(const cam_program *program) {
    return whole_lines((uint64_t)program->capacity_rows * sizeof(float));
}
static uint64_t scratch_attend_causal(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)op;
    return causal_bytes(program) * n_threads;
}
static uint64_t scratch_attend_back(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)op;
    return BACK_ARRAYS * causal_bytes(program) * n_threads;
}

static void op_attend_causal(const cam_op *op, const cam_run *run, uint32_t thread) {
    const causal a = causal_of(op, &op->views[CAUSAL_Q], &op->views[CAUSAL_V]);
    float *scores = AT(float, run->program->scratch + causal_bytes(run->program) * thread);
    const uint32_t n = n_rows(run, &op->views[CAUSAL_Q]);
    for (cam_range mine = {0, 0}; mine = next_units(run, n, 4, thread, mine), mine.start < mine.end;)
        for (uint32_t row = mine.start; row < mine.end; row++)
            for (uint32_t head = 0; head < a.n_heads; head++) attend_one(op, &a, run, row, head, scores);
}

/* probs = exp(scores - log_sums); slopes = probs * (dprobs - deltas) * the cap's derivative * scale, both in
 * place. */
static void find_slopes(const causal *a, float *probs, float *slopes, const float *log_sums, const float *deltas,
                        uint32_t n) {
    for (uint32_t i = 0; i < n; i += LANES) {
        const uint32_t left = n - i;
        const vf score = vf_get(probs + i, left), p = vf_exp(score - vf_get(log_sums + i, left));
        const vf slope = p * (vf_get(slopes + i, left) - vf_get(deltas + i, left)) * cap_slope(a, score);
        vf_put(slopes + i, left, slope * vf_set(a->scale));
        vf_put(probs + i, left, p);
    }
}

/* A thread's arrays of a number for each row. */
typedef struct { float *probs, *slopes, *log_sums, *deltas; } back_arrays;

static void fill(float *to, uint32_t n, float value) {
    for (uint32_t i = 0; i < n; i++) to[i] = value;
}

/* dq of a row and head, and its delta. */
static void query_back(const cam_op *op, const causal *a, const cam_run *run, uint32_t row, uint32_t head,
                       back_arrays each) {
    const cam_range keys = keys_of(a, run, row);
    const uint32_t n = keys.end - keys.start, kv_head = head / a->group;
    float *stats = row_of(&op->views[BACK_STATS], row) + head;
    score_rows(a, &op->views[BACK_K], keys, kv_head, head_of(&op->views[BACK_Q], row, head, a->q_dim), each.probs);
    dot_rows_of(&op->views[BACK_V], keys, kv_head, a->v_dim, head_of(&op->views[BACK_DY_ROWS], row, head, a->v_dim),
                1.0f, each.slopes);
    vf sums[SUMS] = {{0}};
    EACH_SUMMED(i, k, n) {
        const vf p = vf_exp(vf_get(each.probs + i, n - i) - vf_set(stats[0]));
        sums[k] += vf_first(p * vf_get(each.slopes + i, n - i), n - i);
    }
    stats[a->n_heads] = sums_total(sums);
    fill(each.log_sums, n, stats[0]), fill(each.deltas, n, stats[a->n_heads]);
    find_slopes(a, each.probs, each.slopes, each.log_sums, each.deltas, n);
    float *dq = row_of(&op->views[BACK_DQ], row) + (uint64_t)head * a->q_dim;
    sum_rows_of(&op->views[BACK_K], keys, kv_head, a->q_dim, each.slopes, dq, 0);
}

/* dk and dv of a row and KV head: sums over its query heads and the rows that see it. */
static void key_back(const cam_op *op, const causal *a, const cam_run *run, uint32_t row, uint32_t kv_head,
                     back_arrays each) {
    const cam_range queries = queries_of(a, run, row);
    const uint32_t n = queries.end - queries.start;
    float *dk = row_of(&op->views[BACK_DK], row) + (uint64_t)kv_head * a->q_dim;
    float *dv = row_of(&op->views[BACK_DV], row) + (uint64_t)kv_head * a->v_dim;
    for (uint32_t head = kv_head * a->group; head < (kv_head + 1) * a->group; head++) {
        const int adds = head > kv_head * a->group;
        score_rows(a, &op->views[BACK_Q], queries, head, head_of(&op->views[BACK_K], row, kv_head, a->q_dim),
                   each.probs);
        dot_rows_of(&op->views[BACK_DY_ROWS], queries, head, a->v_dim,
                    head_of(&op->views[BACK_V], row, kv_head, a->v_dim), 1.0f, each.slopes);
        for (uint32_t i = 0; i < n; i++) {
            const float *stats = row_of(&op->views[BACK_STATS], row + i) + head;
            each.log_sums[i] = stats[0], each.deltas[i] = stats[a->n_heads];
        }
        find_slopes(a, each.probs, each.slopes, each.log_sums, each.deltas, n);
        sum_rows_of(&op->views[BACK_Q], queries, head, a->q_dim, each.slopes, dk, adds);
        sum_rows_of(&op->views[BACK_DY_ROWS], queries, head, a->v_dim, each.probs, dv, adds);
    }
}

static void op_attend_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    const causal a = causal_of(op, &op->views[BACK_Q], &op->views[BACK_V]);
    const uint64_t bytes = causal_bytes(run->program);
    float *at = AT(float, run->program->scratch + BACK_ARRAYS * bytes * thread);
    const uint64_t n_floats = bytes / sizeof(float);
    const back_arrays each = {at, at + n_floats, at + 2 * n_floats, at + 3 * n_floats};
    const uint32_t n = n_rows(run, &op->views[BACK_Q]);
    for (cam_range mine = {0, 0}; mine = next_units(run, n, 4, thread, mine), mine.start < mine.end;)
        for (uint32_t row = mine.start; row < mine.end; row++)
            for (uint32_t head = 0; head < a.n_heads; head++) query_back(op, &a, run, row, head, each);
    cam_meet(run, thread);
    for (cam_range mine = {0, 0}; mine = next_units(run, n, 4, thread, mine), mine.start < mine.end;)
        for (uint32_t row = mine.start; row < mine.end; row++)
            for (uint32_t head = 0; head < a.n_kv_heads; head++) key_back(op, &a, run, row, head, each);
}

/* Losses of training plans with their gradients, the penalty of elastic weight consolidation, AdamW. */
#include "parts.h"
#include "vmath.h"

/* ---- loss */

enum { LOSS_LOSSES, LOSS_LOGITS, LOSS_ANSWERS, LOSS_BASE };
enum { ANSWER_TARGET, ANSWER_LIKELIHOOD, ANSWER_KL, ANSWER_UNLIKELIHOOD };
enum { LOST_LIKELIHOOD, LOST_KL, LOST_UNLIKELIHOOD };

static float top_of(const float *x, uint32_t n) {
    vf top = vf_set(x[0]);
    for (uint32_t i = 0; i + LANES <= n; i += LANES) top = vf_max(vf_load(x + i), top);
    float found = vf_top(top);
    for (uint32_t i = n - n % LANES; i < n; i++) found = x[i] > found ? x[i] : found;
    return found;
}
static float sum_exps(const float *x, uint32_t n, float top) {
    vf sums[SUMS] = {{0}};
    EACH_SUMMED(i, k, n) sums[k] += vf_first(vf_exp(vf_get(x + i, n - i) - vf_set(top)), n - i);
    return sums_total(sums);
}
static float log_sum(const float *x, uint32_t n) {
    const float top = top_of(x, n);
    return top + f_log(sum_exps(x, n, top));
}
/* log-sum-exp of all columns but one: not a difference, which would cancel. */
static float log_sum_without(float *x, uint32_t n, uint32_t one) {
    const float held = x[one];
    x[one] = -__builtin_inff();
    const float found = log_sum(x, n);
    x[one] = held;
    return found;
}

/* KL divergence from the base, and its gradient kl * (p - b) added to the row of gradients. */
static float add_base(const float *base, const float *logs, float *slopes, uint32_t n, float kl) {
    const float total = log_sum(base, n);
    vf sums[SUMS] = {{0}};
    EACH_SUMMED(i, k, n) {
        const vf log_b = vf_get(base + i, n - i) - vf_set(total), log_p = vf_get(logs + i, n - i);
        const vf b = vf_exp(log_b), slope = vf_get(slopes + i, n - i);
        sums[k] += vf_first(b * (log_b - log_p), n - i);
        vf_put(slopes + i, n - i, vf_fma(vf_set(kl), vf_exp(log_p) - b, slope));
    }
    return sums_total(sums);
}

/* logits become log-probabilities, slopes (a row of scratch) the gradient. */
static void lose_row(const float *answer, float *logits, const float *base, float *slopes, uint32_t n,
                     float *losses) {
    const uint32_t target = (uint32_t)answer[ANSWER_TARGET];
    const float likelihood = answer[ANSWER_LIKELIHOOD], away = answer[ANSWER_UNLIKELIHOOD];
    const float rest = away != 0 ? log_sum_without(logits, n, target) : 0.0f, total = log_sum(logits, n);
    const float hit = f_exp(logits[target] - total);
    for (uint32_t i = 0; i < n; i += LANES) {
        const vf logit = vf_get(logits + i, n - i), p = vf_exp(logit - vf_set(total));
        vf slope = vf_set(likelihood) * p;
        if (away != 0) slope -= vf_set(away * hit) * vf_exp(vf_min(logit - vf_set(rest), VF(80.0f)));
        vf_put(slopes + i, n - i, slope);
        vf_put(logits + i, n - i, logit - vf_set(total));
    }
    slopes[target] = likelihood * (hit - 1.0f) + away * hit;
    losses[LOST_LIKELIHOOD] = -likelihood * logits[target];
    losses[LOST_UNLIKELIHOOD] = away != 0 ? -away * (rest - total) : 0.0f;
    losses[LOST_KL] = 0.0f;
    if (base) losses[LOST_KL] = answer[ANSWER_KL] * add_base(base, logits, slopes, n, answer[ANSWER_KL]);
}

static uint64_t loss_bytes(const cam_op *op) { return whole_lines(op->views[LOSS_LOGITS].cols * sizeof(float)); }
static uint64_t scratch_loss(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return loss_bytes(op) * n_threads;
}
static void op_loss(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *logits = &op->views[LOSS_LOGITS], *base = &op->views[LOSS_BASE];
    float *slopes = AT(float, run->program->scratch + loss_bytes(op) * thread);
    const cam_range rows = share(n_rows(run, logits), run, thread);
    for (uint32_t o = rows.start; o < rows.end; o++) {
        lose_row(row_of(&op->views[LOSS_ANSWERS], o), row_of(logits, o), base->at ? row_of(base, o) : NULL, slopes,
                 logits->cols, row_of(&op->views[LOSS_LOSSES], o));
        memcpy(row_of(logits, o), slopes, logits->cols * sizeof(float));
    }
}

/* ---- measure, anchor: the penalty of elastic weight consolidation */

enum { MEASURE_X, MEASURE_DY };
enum { MEASURE_ROWS_AT, MEASURE_COLS_AT };
enum { FISHER_ROWS, FISHER_COLS };

/* sums [own->cols] += the sum over rows of own^2 * |other|^2, in a thread's columns; lengths in scratch. */
static void add_squares(const cam_view *own, uint32_t rows, cam_range cols, const float *lengths, float *sums) {
    for (uint32_t t = 0; t < rows; t++) {
        const float *x = row_of(own, t);
        for (uint32_t c = cols.start; c < cols.end; c++) sums[c] += x[c] * x[c] * lengths[t];
    }
}

static uint64_t scratch_measure(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)op, (void)n_threads;
    const uint32_t rows = program->capacity_rows > program->capacity_outputs ? program->capacity_rows
                                                                              : program->capacity_outputs;
    return 2 * whole_lines((uint64_t)rows * sizeof(float));
}
static void op_measure(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[MEASURE_X], *dy = &op->views[MEASURE_DY];
    const uint32_t n = n_rows(run, x);
    float *of_x = AT(float, run->program->scratch), *of_dy = of_x + n;
    const cam_range rows = share(n, run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        of_x[t] = sum_squares(row_of(x, t), x->cols, 0.0f);
        of_dy[t] = sum_squares(row_of(dy, t), dy->cols, 0.0f);
    }
    cam_meet(run, thread);
    float *row_sums = AT(float, op->states[0].at[FISHER_ROWS]) + (uint64_t)op->attrs[MEASURE_ROWS_AT];
    float *col_sums = AT(float, op->states[0].at[FISHER_COLS]) + (uint64_t)op->attrs[MEASURE_COLS_AT];
    add_squares(dy, n, share(dy->cols, run, thread), of_x, row_sums);
    add_squares(x, n, share(x->cols, run, thread), of_dy, col_sums);
}

enum { ANCHOR_AT, ANCHOR_RANK, ANCHOR_N_IN, ANCHOR_N_OUT, ANCHOR_ROWS_AT, ANCHOR_COLS_AT };
enum { HOW_RATE, HOW_FIRST, HOW_SECOND, HOW_MOST, HOW_DECAY, HOW_ANCHOR };

/* gram [rank, rank] = m * diag(by) * m transposed, m [rank, n]. */
static void find_gram(const float *m, const float *by, uint32_t rank, uint32_t n, float *gram) {
    for (uint32_t k = 0; k < rank; k++)
        for (uint32_t l = 0; l < rank; l++) {
            vf sums[SUMS] = {{0}};
            const float *a = m + (uint64_t)n * k, *b = m + (uint64_t)n * l;
            EACH_SUMMED(i, s, n)
                sums[s] = vf_fma(vf_get(a + i, n - i) * vf_get(by + i, n - i), vf_get(b + i, n - i), sums[s]);
            gram[MOST_TERM_RANK * k + l] = sums_total(sums);
        }
}
/* gradient [rank, n] += scale * gram * m * diag(by), in a range of columns. */
static void add_anchor(const float *gram, const float *m, const float *by, uint32_t rank, uint32_t n, cam_range cols,
                       float scale, float *gradient) {
    for (uint32_t k = 0; k < rank; k++)
        for (uint32_t l = 0; l < rank; l++)
            for (uint32_t c = cols.start; c < cols.end; c++)
                gradient[(uint64_t)n * k + c] += scale * gram[MOST_TERM_RANK * k + l] * m[(uint64_t)n * l + c] * by[c];
}

static void op_anchor(const cam_op *op, const cam_run *run, uint32_t thread) {
    const uint32_t rank = (uint32_t)op->attrs[ANCHOR_RANK];
    const uint32_t n_in = (uint32_t)op->attrs[ANCHOR_N_IN], n_out = (uint32_t)op->attrs[ANCHOR_N_OUT];
    const uint64_t at = (uint64_t)op->attrs[ANCHOR_AT], b_at = at + (uint64_t)rank * n_in;
    const float *value = AT(float, op->states[0].at[TENSOR_VALUE]);
    float *gradient = AT(float, op->states[0].at[TENSOR_GRADIENT]);
    const float *rows = AT(float, op->states[1].at[FISHER_ROWS]) + (uint64_t)op->attrs[ANCHOR_ROWS_AT];
    const float *cols = AT(float, op->states[1].at[FISHER_COLS]) + (uint64_t)op->attrs[ANCHOR_COLS_AT];
    float of_b[MOST_TERM_RANK * MOST_TERM_RANK], of_a[MOST_TERM_RANK * MOST_TERM_RANK];
    find_gram(value + b_at, rows, rank, n_out, of_b);
    find_gram(value + at, cols, rank, n_in, of_a);
    const float total = sum_floats(rows, n_out), least = 0x1p-126f;
    const float scale = 2.0f * row_of(&op->views[0], 0)[HOW_ANCHOR] / (total > least ? total : least);
    add_anchor(of_b, value + at, cols, rank, n_in, share(n_in, run, thread), scale, gradient + at);
    add_anchor(of_a, value + b_at, rows, rank, n_out, share(n_out, run, thread), scale, gradient + b_at);
}

/* ---- adamw */

enum { ADAMW_NORM, ADAMW_HOW };
enum { ADAMW_FIRST_BETA, ADAMW_SECOND_BETA, ADAMW_EPS };
enum { ADAMW_PART = 4096 };   /* values per partial sum */

typedef struct { float *value, *gradient, *first, *second; uint32_t n; } trained;

static trained trained_of(const cam_op *op) {
    const cam_state *values = &op->states[0], *moments = &op->states[1];
    return (trained){AT(float, values->at[0]), AT(float, values->at[1]), AT(float, moments->at[0]),
                     AT(float, moments->at[1]), values->cols[0]};
}

/* AdamW (arXiv 1711.05101) on values [start, end), with gradients times `by`. */
static void adamw_range(const cam_op *op, trained all, uint32_t start, uint32_t end, const float *how, float by) {
    const vf b1 = vf_set(attr_of(op, ADAMW_FIRST_BETA)), b2 = vf_set(attr_of(op, ADAMW_SECOND_BETA));
    const vf rate = vf_set(how[HOW_RATE]), eps = vf_set(attr_of(op, ADAMW_EPS));
    for (uint32_t i = start; i < end; i += LANES) {
        const uint32_t left = end - i;
        const vf g = vf_get(all.gradient + i, left) * vf_set(by), value = vf_get(all.value + i, left);
        const vf first = vf_fma(b1, vf_get(all.first + i, left), (1.0f - b1) * g);
        const vf second = vf_fma(b2, vf_get(all.second + i, left), (1.0f - b2) * g * g);
        const vf size = vf_sqrt(second / vf_set(how[HOW_SECOND])) + eps;
        const vf move = vf_fma(vf_set(how[HOW_DECAY]), value, first / vf_set(how[HOW_FIRST]) / size);
        vf_put(all.first + i, left, first);
        vf_put(all.second + i, left, second);
        vf_put(all.value + i, left, value - rate * move);
        vf_put(all.gradient + i, left, (vf){0});
    }
}

static uint32_t adamw_parts(uint32_t n) { return (n + ADAMW_PART - 1) / ADAMW_PART; }
static uint64_t scratch_adamw(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program, (void)n_threads;
    return whole_lines(adamw_parts(op->states[0].cols[0]) * sizeof(double));
}
static void op_adamw(const cam_op *op, const cam_run *run, uint32_t thread) {
    const trained all = trained_of(op);
    const float *how = row_of(&op->views[ADAMW_HOW], 0);
    double *sums = AT(double, run->program->scratch), total = 0.0;
    const uint32_t n_parts = adamw_parts(all.n);
    const cam_range parts = share(n_parts, run, thread);
    for (uint32_t p = parts.start; p < parts.end; p++) {
        const uint32_t start = ADAMW_PART * p, left = all.n - start, n = left < ADAMW_PART ? left : ADAMW_PART;
        sums[p] = sum_squares(all.gradient + start, n, 0.0f);
    }
    cam_meet(run, thread);
    for (uint32_t p = 0; p < n_parts; p++) total += sums[p];
    const float norm = (float)__builtin_sqrt(total), most = how[HOW_MOST];
    const float by = most > 0 && norm > most ? most / (norm + 1e-6f) : 1.0f;
    for (uint32_t p = parts.start; p < parts.end; p++) {
        const uint32_t start = ADAMW_PART * p, left = all.n - start, n = left < ADAMW_PART ? left : ADAMW_PART;
        adamw_range(op, all, start, start + n, how, by);
    }
    if (thread == 0) *row_of(&op->views[ADAMW_NORM], 0) = norm;
}

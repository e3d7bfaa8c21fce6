/* Recurrent ops, whose state is in a sequence's slot. Threads share independent parts: channels of conv1d,
 * rows of the state matrix of a scan. Rows of a sequence are processed in order, sequence by sequence, and
 * the state is rounded to float32 after every row. */
#include "parts.h"
#include "run.h"
#include "vmath.h"

enum { CONV_Y, CONV_X };
enum { CONV_WEIGHT, CONV_BIAS };
enum { CONV_ACT };
enum { MAMBA2_Y, MAMBA2_X, MAMBA2_B, MAMBA2_C, MAMBA2_DT };
enum { MAMBA2_A, MAMBA2_D, MAMBA2_DT_BIAS };
enum { MAMBA2_N_GROUPS };
enum { DELTA_Y, DELTA_Q, DELTA_K, DELTA_V, DELTA_DT, DELTA_BETA };
enum { DELTA_A, DELTA_DT_BIAS };
enum { DELTA_N_KEY_HEADS, DELTA_SCALE };
enum { SHIFT_Y, SHIFT_X };
enum { SHIFT_LERP };
enum { SHIFT_PART };
enum { RWKV6_Y, RWKV6_R, RWKV6_W, RWKV6_K, RWKV6_V };
enum { RWKV6_U };
enum { RWKV6_N_HEADS };
enum { RWKV7_Y, RWKV7_R, RWKV7_W, RWKV7_K, RWKV7_V, RWKV7_A };
enum { RWKV7_K_K, RWKV7_K_A };
enum { RWKV7_N_HEADS };
enum { BONUS_X, BONUS_R, BONUS_K, BONUS_V, BONUS_A };
enum { BONUS_K_A, BONUS_R_K };
enum { BONUS_N_HEADS };
enum { WKV_WIDTH = 256 };   /* most columns of a head of RWKV: MAX_WKV_WIDTH of op_rows_recurrent.py */
enum { SCAN_ROWS = 16 };   /* rows of a head's state matrix that stay in the L1 cache from token to token */

/* Slot of a sequence; `which` is GROUP_READ or GROUP_WRITE. */
INLINE float *slot_of(const cam_op *op, const cam_run *run, uint32_t sequence, uint32_t which) {
    const cam_state *state = &op->states[0];
    uint64_t unit = group_words(run, sequence, state->group)[which];
    return AT(float, state->at[0] + unit * state->unit_rows * state->row_bytes[0]);
}
INLINE int is_held(const cam_op *op, const cam_run *run, uint32_t sequence) {
    return group_words(run, sequence, op->states[0].group)[GROUP_HELD] != 0;
}
INLINE cam_range rows_of(const cam_run *run, uint32_t sequence) {
    const uint32_t *words = sequence_words(run, sequence);
    return (cam_range){words[SEQUENCE_FIRST_ROW], words[SEQUENCE_FIRST_ROW] + words[SEQUENCE_N_ROWS]};
}

/* Up to LANES channels, from `at` on. */
typedef struct {
    uint32_t at, left, n_taps;
    vf bias, *taps, *seen;   /* [n_taps]: weights; last rows including the current, oldest first */
} conv_part;

static uint64_t scratch_conv1d(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return 2ull * 64 * op->weights[CONV_WEIGHT].cols * n_threads;
}

static conv_part conv_part_of(const cam_op *op, uint64_t scratch, uint32_t at) {
    const cam_weight *weight = &op->weights[CONV_WEIGHT], *bias = &op->weights[CONV_BIAS];
    uint32_t n_taps = weight->cols, left = op->views[CONV_X].cols - at;
    conv_part part = {.at = at, .left = left, .n_taps = n_taps};
    part.taps = AT(vf, scratch), part.seen = part.taps + n_taps;
    if (bias->at) part.bias = vf_get(AT(float, bias->at) + at, left);
    for (uint32_t j = 0; j < n_taps; j++) part.taps[j] = (vf){0};
    for (uint32_t lane = 0; lane < LANES && lane < left; lane++)
        for (uint32_t j = 0; j < n_taps; j++)
            part.taps[j][lane] = AT(float, weight->at)[(uint64_t)(at + lane) * n_taps + j];
    return part;
}

/* Output for the next row x; drops the oldest row. */
static vf conv_row(conv_part p, vf x) {
    vf sum = p.bias;
    p.seen[p.n_taps - 1] = x;
    for (uint32_t j = 0; j < p.n_taps; j++) sum = vf_fma(p.seen[j], p.taps[j], sum);
    for (uint32_t j = 1; j < p.n_taps; j++) p.seen[j - 1] = p.seen[j];
    return sum;
}

static void conv_sequence(const cam_op *op, const cam_run *run, uint32_t sequence, conv_part p) {
    const cam_view *x = &op->views[CONV_X], *y = &op->views[CONV_Y];
    const float *read = slot_of(op, run, sequence, GROUP_READ) + p.at;
    float *write = slot_of(op, run, sequence, GROUP_WRITE) + p.at;
    cam_range rows = rows_of(run, sequence);
    int held = is_held(op, run, sequence);
    for (uint32_t j = 0; j + 1 < p.n_taps; j++)
        p.seen[j] = held ? vf_get(read + (uint64_t)j * x->cols, p.left) : (vf){0};
    for (uint32_t t = rows.start; t < rows.end; t++) {
        vf sum = conv_row(p, vf_get(row_of(x, t) + p.at, p.left));
        vf_put(row_of(y, t) + p.at, p.left, vf_act((uint32_t)op->attrs[CONV_ACT], sum));
    }
    for (uint32_t j = 0; j + 1 < p.n_taps; j++) vf_put(write + (uint64_t)j * x->cols, p.left, p.seen[j]);
}

static void op_conv1d(const cam_op *op, const cam_run *run, uint32_t thread) {
    uint64_t scratch = run->program->scratch + 2ull * 64 * op->weights[CONV_WEIGHT].cols * thread;
    cam_range parts = share((op->views[CONV_X].cols + LANES - 1) / LANES, run, thread);
    for (uint32_t i = parts.start; i < parts.end; i++) {
        conv_part part = conv_part_of(op, scratch, i * LANES);
        for (uint32_t s = 0; s < run->step[STEP_SEQUENCES]; s++) conv_sequence(op, run, s, part);
    }
}

/* Rows [start, end) of a head's state matrix, which has `width` columns. */
typedef struct { uint32_t head, start, end, width; } scan_part;
typedef void scan_row(const cam_op *op, uint32_t t, scan_part part, float *state);

/* Copies these rows from the read slot to the write slot (zeros for a new sequence). Returns the copy. */
static float *carry_state(const cam_op *op, const cam_run *run, uint32_t sequence, uint64_t at, uint32_t n) {
    float *to = slot_of(op, run, sequence, GROUP_WRITE) + at;
    if (is_held(op, run, sequence)) memmove(to, slot_of(op, run, sequence, GROUP_READ) + at, 4 * (size_t)n);
    else memset(to, 0, 4 * (size_t)n);
    return to;
}

/* Calls `work` on each row of the step, for the thread's parts of the heads, which are columns of
 * `values`. */
INLINE void scan(const cam_op *op, const cam_run *run, uint32_t thread, uint32_t n_heads,
                 const cam_view *values, scan_row *work) {
    uint32_t head_rows = values->cols / n_heads, n_parts = (head_rows + SCAN_ROWS - 1) / SCAN_ROWS;
    uint32_t width = op->states[0].cols[0] / values->cols;
    cam_range mine = share(n_heads * n_parts, run, thread);
    for (uint32_t i = mine.start; i < mine.end; i++) {
        uint32_t start = i % n_parts * SCAN_ROWS, end = start + SCAN_ROWS;
        scan_part part = {i / n_parts, start, end < head_rows ? end : head_rows, width};
        uint64_t at = ((uint64_t)part.head * head_rows + start) * width;
        for (uint32_t s = 0; s < run->step[STEP_SEQUENCES]; s++) {
            float *state = carry_state(op, run, s, at, (part.end - start) * width);
            cam_range rows = rows_of(run, s);
            for (uint32_t t = rows.start; t < rows.end; t++) work(op, t, part, state);
        }
    }
}

/* Time step of a head: softplus(dt + dt_bias). */
static float time_step(const cam_view *dt, const cam_weight *bias, uint32_t t, uint32_t head) {
    float x = row_of(dt, t)[head];
    return f_softplus(bias->at ? x + AT(float, bias->at)[head] : x);
}

/* S = decay * S + by * b; returns S @ c. */
static float mamba2_state(float *state, uint32_t n, const float *b, const float *c, float decay, float by) {
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf s = vf_fma(vf_get(b + i, left), vf_set(by), vf_get(state + i, left) * vf_set(decay));
        vf_put(state + i, left, s);
        sum = vf_fma(s, vf_get(c + i, left), sum);
    }
    return vf_sum(sum);
}

/* The same with a decay of exp(dt * a) for each column (Mamba, Gu and Dao, arXiv 2312.00752). */
static float mamba_state(float *state, uint32_t n, const float *b, const float *c, const float *a, float dt,
                         float by) {
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf decay = vf_exp(vf_get(a + i, left) * vf_set(dt));
        vf s = vf_fma(vf_get(b + i, left), vf_set(by), vf_get(state + i, left) * decay);
        vf_put(state + i, left, s);
        sum = vf_fma(s, vf_get(c + i, left), sum);
    }
    return vf_sum(sum);
}

/* Mamba-2: the recurrent form of state space duality (Dao and Gu, arXiv 2405.21060). */
static void mamba2_row(const cam_op *op, uint32_t t, scan_part p, float *state) {
    const cam_view *views = op->views;
    const cam_weight *d = &op->weights[MAMBA2_D];
    uint32_t n_heads = views[MAMBA2_DT].cols, head_rows = views[MAMBA2_X].cols / n_heads;
    uint32_t group = p.head / (n_heads / (uint32_t)op->attrs[MAMBA2_N_GROUPS]);
    float dt = time_step(&views[MAMBA2_DT], &op->weights[MAMBA2_DT_BIAS], t, p.head);
    const cam_weight *weight = &op->weights[MAMBA2_A];
    const float *a = AT(float, weight->at);
    int by_column = (uint64_t)weight->rows * weight->cols > n_heads;
    float decay = by_column ? 0.0f : f_exp(dt * a[p.head]);
    float skip = d->at ? AT(float, d->at)[p.head] : 0.0f;
    const float *b = row_of(&views[MAMBA2_B], t) + group * p.width;
    const float *c = row_of(&views[MAMBA2_C], t) + group * p.width;
    const float *x = row_of(&views[MAMBA2_X], t) + p.head * head_rows;
    float *y = row_of(&views[MAMBA2_Y], t) + p.head * head_rows;
    for (uint32_t i = p.start; i < p.end; i++, state += p.width) {
        float sum = by_column ? mamba_state(state, p.width, b, c, a + (uint64_t)p.head * p.width, dt, dt * x[i])
                              : mamba2_state(state, p.width, b, c, decay, dt * x[i]);
        y[i] = sum + skip * x[i];
    }
}

static void op_scan_mamba2(const cam_op *op, const cam_run *run, uint32_t thread) {
    scan(op, run, thread, op->views[MAMBA2_DT].cols, &op->views[MAMBA2_X], mamba2_row);
}

static float decayed_product(const float *state, uint32_t n, const float *k, float decay) {
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES)
        sum = vf_fma(vf_get(state + i, n - i) * vf_set(decay), vf_get(k + i, n - i), sum);
    return vf_sum(sum);
}

/* Gated delta rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464). */
static void delta_row(const cam_op *op, uint32_t t, scan_part p, float *state) {
    const cam_view *views = op->views;
    uint32_t n_heads = views[DELTA_DT].cols, head_rows = views[DELTA_V].cols / n_heads;
    uint32_t at = p.head / (n_heads / (uint32_t)op->attrs[DELTA_N_KEY_HEADS]) * p.width;
    float dt = time_step(&views[DELTA_DT], &op->weights[DELTA_DT_BIAS], t, p.head);
    float decay = f_exp(dt * AT(float, op->weights[DELTA_A].at)[p.head]);
    float beta = row_of(&views[DELTA_BETA], t)[p.head];
    const float *q = row_of(&views[DELTA_Q], t) + at, *k = row_of(&views[DELTA_K], t) + at;
    const float *v = row_of(&views[DELTA_V], t) + p.head * head_rows;
    float *y = row_of(&views[DELTA_Y], t) + p.head * head_rows;
    for (uint32_t i = p.start; i < p.end; i++, state += p.width) {
        float wrong = v[i] - decayed_product(state, p.width, k, decay);
        y[i] = (float)op->attrs[DELTA_SCALE] * mamba2_state(state, p.width, k, q, decay, beta * wrong);
    }
}

static void op_scan_delta(const cam_op *op, const cam_run *run, uint32_t thread) {
    scan(op, run, thread, op->views[DELTA_DT].cols, &op->views[DELTA_V], delta_row);
}

/* Up to LANES columns of token_shift, from `at` on. */
static void shift_sequence(const cam_op *op, const cam_run *run, uint32_t sequence, uint32_t at) {
    const cam_view *x = &op->views[SHIFT_X], *y = &op->views[SHIFT_Y];
    const float *lerp = AT(float, op->weights[SHIFT_LERP].at);
    uint32_t left = x->cols - at, column = (uint32_t)op->attrs[SHIFT_PART] * x->cols + at;
    cam_range rows = rows_of(run, sequence);
    int held = is_held(op, run, sequence);
    vf before = held ? vf_get(slot_of(op, run, sequence, GROUP_READ) + column, left) : (vf){0};
    for (uint32_t t = rows.start; t < rows.end; t++) {
        vf now = vf_get(row_of(x, t) + at, left), change = before - now;
        for (uint32_t i = at; i < y->cols; i += x->cols)
            vf_put(row_of(y, t) + i, left, vf_fma(vf_get(lerp + i, left), change, now));
        before = now;
    }
    vf_put(slot_of(op, run, sequence, GROUP_WRITE) + column, left, before);
}

static void op_token_shift(const cam_op *op, const cam_run *run, uint32_t thread) {
    cam_range parts = share((op->views[SHIFT_X].cols + LANES - 1) / LANES, run, thread);
    for (uint32_t i = parts.start; i < parts.end; i++)
        for (uint32_t s = 0; s < run->step[STEP_SEQUENCES]; s++) shift_sequence(op, run, s, i * LANES);
}

/* S = S * decay + v * key; returns S @ r, with the S before (`is_late`) or after. */
INLINE float rwkv6_state(float *state, uint32_t n, const float *decay, const float *key, const float *r,
                         float v, int is_late) {
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf before = vf_get(state + i, left);
        vf s = vf_fma(vf_get(key + i, left), vf_set(v), before * vf_get(decay + i, left));
        vf_put(state + i, left, s);
        sum = vf_fma(is_late ? before : s, vf_get(r + i, left), sum);
    }
    return vf_sum(sum);
}

/* The decays of a head's columns, and its key, times 1 - decay without `u`. */
static void rwkv6_head(const float *w, const float *k, uint32_t n, int has_u, float *decay, float *key) {
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf less = vf_expm1_negative(-vf_exp(vf_get(w + i, left))), keys = vf_get(k + i, left);
        vf_put(decay + i, left, less + 1.0f);
        vf_put(key + i, left, has_u ? keys : -less * keys);
    }
}

static float sum_of_products(const float *a, const float *b, const float *c, uint32_t n) {
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES)
        sum = vf_fma(vf_get(a + i, n - i) * vf_get(b + i, n - i), vf_get(c + i, n - i), sum);
    return vf_sum(sum);
}

/* RWKV-6 (Peng et al., arXiv 2404.05892), and without `u` gated linear attention. */
static void rwkv6_row(const cam_op *op, uint32_t t, scan_part p, float *state) {
    const cam_view *views = op->views;
    uint32_t at = p.head * p.width;
    uint32_t key_at = p.head / (views[RWKV6_R].cols / views[RWKV6_K].cols) * p.width;
    const float *r = row_of(&views[RWKV6_R], t) + at, *k = row_of(&views[RWKV6_K], t) + key_at;
    const float *v = row_of(&views[RWKV6_V], t) + key_at, *w = row_of(&views[RWKV6_W], t) + at;
    float *y = row_of(&views[RWKV6_Y], t) + at, decay[WKV_WIDTH], key[WKV_WIDTH];
    int has_u = op->weights[RWKV6_U].at != 0;
    rwkv6_head(w, k, p.width, has_u, decay, key);
    float bonus = has_u ? sum_of_products(r, AT(float, op->weights[RWKV6_U].at) + at, k, p.width) : 0.0f;
    for (uint32_t i = p.start; i < p.end; i++, state += p.width)
        y[i] = rwkv6_state(state, p.width, decay, key, r, v[i], has_u) + bonus * v[i];
}

static void op_scan_rwkv6(const cam_op *op, const cam_run *run, uint32_t thread) {
    scan(op, run, thread, (uint32_t)op->attrs[RWKV6_N_HEADS], &op->views[RWKV6_Y], rwkv6_row);
}

/* A head's vectors of one row of scan_rwkv7: u, a * u, key and decay of its meaning in op_rows_recurrent.py. */
typedef struct { float unit[WKV_WIDTH], correction[WKV_WIDTH], key[WKV_WIDTH], decay[WKV_WIDTH]; } wkv_head;

/* k * (1 + (a - 1) * k_a) */
INLINE vf rwkv7_key(vf k, vf a, vf k_a) { return vf_fma(k * (a - 1.0f), k_a, k); }

static void rwkv7_head(const cam_op *op, uint32_t t, uint32_t at, uint32_t n, wkv_head *h) {
    const cam_view *views = op->views;
    const float *k = row_of(&views[RWKV7_K], t) + at, *a = row_of(&views[RWKV7_A], t) + at;
    const float *w = row_of(&views[RWKV7_W], t) + at;
    const float *k_k = AT(float, op->weights[RWKV7_K_K].at) + at;
    const float *k_a = AT(float, op->weights[RWKV7_K_A].at) + at;
    vf squares = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        vf u = vf_get(k + i, n - i) * vf_get(k_k + i, n - i);
        vf_put(h->unit + i, n - i, u);
        squares = vf_fma(u, u, squares);
    }
    float length = __builtin_sqrtf(vf_sum(squares));
    vf scale = vf_set(1.0f / (length > 1e-12f ? length : 1e-12f));
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf u = vf_get(h->unit + i, left) * scale, rate = vf_get(a + i, left);
        vf_put(h->unit + i, left, u);
        vf_put(h->correction + i, left, rate * u);
        vf_put(h->key + i, left, rwkv7_key(vf_get(k + i, left), rate, vf_get(k_a + i, left)));
        vf_put(h->decay + i, left, vf_exp(vf_sigmoid(vf_get(w + i, left)) * -0.60653066f));   /* exp(-1/2) */
    }
}

/* S = S * decay - held * correction + v * key; returns S @ r. */
static float rwkv7_state(float *state, uint32_t n, const wkv_head *h, const float *r, float held, float v) {
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf s = vf_get(state + i, left) * vf_get(h->decay + i, left);
        s = vf_fma(vf_get(h->correction + i, left), vf_set(-held), s);
        s = vf_fma(vf_get(h->key + i, left), vf_set(v), s);
        vf_put(state + i, left, s);
        sum = vf_fma(s, vf_get(r + i, left), sum);
    }
    return vf_sum(sum);
}

/* RWKV-7's generalized delta rule (Peng et al., arXiv 2503.14456). */
static void rwkv7_row(const cam_op *op, uint32_t t, scan_part p, float *state) {
    uint32_t at = p.head * p.width;
    const float *r = row_of(&op->views[RWKV7_R], t) + at, *v = row_of(&op->views[RWKV7_V], t) + at;
    float *y = row_of(&op->views[RWKV7_Y], t) + at;
    wkv_head h;
    rwkv7_head(op, t, at, p.width, &h);
    for (uint32_t i = p.start; i < p.end; i++, state += p.width)
        y[i] = rwkv7_state(state, p.width, &h, r, decayed_product(state, p.width, h.unit, 1.0f), v[i]);
}

static void op_scan_rwkv7(const cam_op *op, const cam_run *run, uint32_t thread) {
    scan(op, run, thread, (uint32_t)op->attrs[RWKV7_N_HEADS], &op->views[RWKV7_V], rwkv7_row);
}

/* One head of one row of bonus_rwkv7, n columns from `at` on. */
static void bonus_head(const cam_op *op, uint32_t t, uint32_t at, uint32_t n) {
    const cam_view *views = op->views;
    const float *r = row_of(&views[BONUS_R], t) + at, *k = row_of(&views[BONUS_K], t) + at;
    const float *a = row_of(&views[BONUS_A], t) + at, *v = row_of(&views[BONUS_V], t) + at;
    const float *k_a = AT(float, op->weights[BONUS_K_A].at) + at;
    const float *r_k = AT(float, op->weights[BONUS_R_K].at) + at;
    float *x = row_of(&views[BONUS_X], t) + at;
    vf sum = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t left = n - i;
        vf key = rwkv7_key(vf_get(k + i, left), vf_get(a + i, left), vf_get(k_a + i, left));
        sum = vf_fma(vf_get(r + i, left) * vf_get(r_k + i, left), key, sum);
    }
    vf by = vf_set(vf_sum(sum));
    for (uint32_t i = 0; i < n; i += LANES)
        vf_put(x + i, n - i, vf_fma(vf_get(v + i, n - i), by, vf_get(x + i, n - i)));
}

static void op_bonus_rwkv7(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[BONUS_X];
    uint32_t n_heads = (uint32_t)op->attrs[BONUS_N_HEADS], n = x->cols / n_heads;
    cam_range heads = share(n_rows(run, x) * n_heads, run, thread);
    for (uint32_t i = heads.start; i < heads.end; i++) bonus_head(op, i / n_heads, i % n_heads * n, n);
}

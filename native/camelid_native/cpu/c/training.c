/* Ops of training plans beside products and attention: gradients of norms, rotations and activations. */
#include "parts.h"
#include "vmath.h"

/* ---- Copies and sums */

enum { ROWS_Y, ROWS_X };
enum { ACCUMULATE_SCALE, ACCUMULATE_ADDS };

static void copy_span(const cam_op *op, span s) {
    memcpy(row_of(&op->views[ROWS_Y], s.row) + s.start, row_of(&op->views[ROWS_X], s.row) + s.start,
           (s.end - s.start) * sizeof(float));
}
static void op_copy_rows(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[ROWS_Y], copy_span);
}

static vf accumulated(const cam_op *op, vf y, vf x) {
    const vf scale = vf_set(attr_of(op, ACCUMULATE_SCALE));
    return op->attrs[ACCUMULATE_ADDS] != 0 ? vf_fma(scale, x, y) : scale * x;
}
static void accumulate_span(const cam_op *op, span s) { pair_span(op, s, ROWS_Y, ROWS_Y, ROWS_X, accumulated); }
static void op_accumulate(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[ROWS_Y], accumulate_span);
}

/* ---- norm_back */

enum { NORM_BACK_DX, NORM_BACK_X, NORM_BACK_DY };
enum { NORM_BACK_EPS, NORM_BACK_KIND, NORM_BACK_SIZE, NORM_BACK_ADDS };

/* Gradient of the normed values: dy * gain. */
INLINE vf normed_slope(const float *dy, const float *gain, uint32_t i, uint32_t n) {
    const vf v = vf_get(dy + i, n - i);
    return gain ? v * vf_get(gain + i, n - i) : v;
}

/* dx = by * (slope - mean of the slopes) - (x - mean) * by^3 * share of sum((x - mean) * slope). */
static void put_norm_back(float *dx, const float *x, const float *dy, uint32_t n, normal how, float slope_mean,
                          float pull, int adds) {
    for (uint32_t i = 0; i < n; i += LANES) {
        const vf slope = normed_slope(dy, how.gain, i, n) - vf_set(slope_mean);
        const vf centred = vf_get(x + i, n - i) - vf_set(how.mean);
        vf v = vf_set(how.by) * slope - centred * vf_set(pull);
        vf_put(dx + i, n - i, adds ? vf_get(dx + i, n - i) + v : v);
    }
}

static void norm_back_group(const cam_op *op, float *dx, const float *x, const float *dy, uint32_t n,
                            const float *gain) {
    /* normal_of reads eps and kind, which stand first in both ops. */
    normal how = normal_of(op, x, n);
    how.gain = gain;
    vf slopes[SUMS] = {{0}}, products_of[SUMS] = {{0}};
    EACH_SUMMED(i, k, n) {
        const vf slope = vf_first(normed_slope(dy, gain, i, n), n - i);
        slopes[k] += slope;
        products_of[k] = vf_fma(vf_get(x + i, n - i) - vf_set(how.mean), slope, products_of[k]);
    }
    const uint32_t kind = (uint32_t)op->attrs[NORM_BACK_KIND];
    const float cube = how.by * how.by * how.by, total = sums_total(products_of);
    float pull = cube * total / (kind == WORD_l2 ? 1.0f : (float)n);
    if (kind == WORD_l2 && how.by >= 1.0f / (float)op->attrs[NORM_BACK_EPS]) pull = 0.0f;   /* the floor */
    const float mean = kind == WORD_layer ? sums_total(slopes) / (float)n : 0.0f;
    put_norm_back(dx, x, dy, n, how, mean, pull, op->attrs[NORM_BACK_ADDS] != 0);
}

static void op_norm_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[NORM_BACK_X];
    const cam_weight *gain = &op->weights[0];
    const uint32_t size = op->attrs[NORM_BACK_SIZE] > 0 ? (uint32_t)op->attrs[NORM_BACK_SIZE] : x->cols;
    const uint32_t n_groups = x->cols / size;
    const cam_range mine = share(n_rows(run, x) * n_groups, run, thread);
    for (uint32_t i = mine.start; i < mine.end; i++) {
        const uint32_t row = i / n_groups, at = i % n_groups * size;
        const uint32_t own = gain->rows * gain->cols > size ? at : 0;
        norm_back_group(op, row_of(&op->views[NORM_BACK_DX], row) + at, row_of(x, row) + at,
                        row_of(&op->views[NORM_BACK_DY], row) + at, size,
                        gain->at ? AT(float, gain->at) + own : NULL);
    }
}

/* ---- rope_back: as rope, with negative sines */

static uint64_t scratch_rope_back(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    return scratch_rope(op, program, n_threads);
}
static void op_rope_back(const cam_op *op, const cam_run *run, uint32_t thread) { turn_rows(op, run, thread, -1.0f); }

/* ---- Activations */

enum { GLU_BACK_DGATE, GLU_BACK_DUP, GLU_BACK_GATE, GLU_BACK_UP, GLU_BACK_DY };
enum { IN_PLACE_DX, IN_PLACE_OTHER };

INLINE vf vf_silu_slope(vf x) {
    const vf s = vf_sigmoid(x);
    return vf_fma(x * s, 1.0f - s, s);
}
/* gelu(x) = x * s(u), u = 2 * sqrt(2 / pi) * (x + 0.044715 * x^3). */
INLINE vf vf_gelu_slope(vf x) {
    const vf s = vf_sigmoid(x * 1.59576912f * (x * x * 0.044715f + 1.0f));
    const vf inner = 1.59576912f * (1.0f + 3.0f * 0.044715f * x * x);
    return vf_fma(x * s * (1.0f - s), inner, s);
}
/* Phi(x) + x * phi(x). */
INLINE vf vf_gelu_erf_slope(vf x) {
    const vf tail = vf_exp(-vf_erfc_exponent(vf_abs(x) * 0.707106781f)) * 0.5f;
    return vf_fma(x, vf_exp(-0.5f * x * x) * 0.39894228f, vf_pick(x < 0.0f, tail, 1.0f - tail));
}

/* Derivative of an activation. */
static inline vf vf_slope(uint32_t word, vf x) {
    switch (word) {
    case WORD_silu: return vf_silu_slope(x);
    case WORD_gelu: return vf_gelu_slope(x);
    case WORD_gelu_erf: return vf_gelu_erf_slope(x);
    case WORD_relu: return vf_pick(x > 0.0f, VF(1.0f), VF(0.0f));
    case WORD_relu2: return 2.0f * vf_relu(x);
    case WORD_sigmoid: { const vf s = vf_sigmoid(x); return s * (1.0f - s); }
    case WORD_tanh: { const vf t = vf_tanh(x); return 1.0f - t * t; }
    default: return VF(1.0f);
    }
}

/* Both gradients of swiglu_oai; see vf_swiglu_oai. */
INLINE void swiglu_oai_back(vf gate, vf up, vf *dgate, vf *dup) {
    const vf low = vf_min(VF(7.0f), gate), held = vf_max(VF(-7.0f), vf_min(VF(7.0f), up));
    const vf s = vf_sigmoid(low * 1.702f);
    const vf slope = vf_fma(low * 1.702f * s, 1.0f - s, s);
    *dgate = vf_pick(gate <= 7.0f, slope * (held + 1.0f), VF(0.0f));
    *dup = vf_pick(vf_abs(up) <= 7.0f, low * s, VF(0.0f));
}

static void glu_back_span(const cam_op *op, span s) {
    const uint32_t word = word_of(op, 0);
    const float *gate = row_of(&op->views[GLU_BACK_GATE], s.row), *up = row_of(&op->views[GLU_BACK_UP], s.row);
    const float *dy = row_of(&op->views[GLU_BACK_DY], s.row);
    float *dgate = row_of(&op->views[GLU_BACK_DGATE], s.row), *dup = row_of(&op->views[GLU_BACK_DUP], s.row);
    for (uint32_t i = s.start; i < s.end; i += LANES) {
        const uint32_t left = s.end - i;
        const vf g = vf_get(gate + i, left), u = vf_get(up + i, left), d = vf_get(dy + i, left);
        vf by_gate, by_up;
        if (word == WORD_swiglu_oai) swiglu_oai_back(g, u, &by_gate, &by_up);
        else by_gate = vf_slope(word, g) * u, by_up = vf_act(word, g);
        vf_put(dgate + i, left, by_gate * d);
        vf_put(dup + i, left, by_up * d);
    }
}
static void op_glu_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[GLU_BACK_DY], glu_back_span);
}

static vf unary_slope(const cam_op *op, vf dx, vf x) { return vf_slope(word_of(op, 0), x) * dx; }
static void unary_back_span(const cam_op *op, span s) {
    pair_span(op, s, IN_PLACE_DX, IN_PLACE_DX, IN_PLACE_OTHER, unary_slope);
}
static void op_unary_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[IN_PLACE_DX], unary_back_span);
}

static vf softcap_slope(const cam_op *op, vf dx, vf y) {
    const vf part = y / vf_set(attr_of(op, 0));
    return (1.0f - part * part) * dx;
}
static void softcap_back_span(const cam_op *op, span s) {
    pair_span(op, s, IN_PLACE_DX, IN_PLACE_DX, IN_PLACE_OTHER, softcap_slope);
}
static void op_softcap_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[IN_PLACE_DX], softcap_back_span);
}

static vf clamp_slope(const cam_op *op, vf dx, vf x) {
    return vf_pick(vf_abs(x) <= vf_set(attr_of(op, 0)), dx, VF(0.0f));
}
static void clamp_back_span(const cam_op *op, span s) {
    pair_span(op, s, IN_PLACE_DX, IN_PLACE_DX, IN_PLACE_OTHER, clamp_slope);
}
static void op_clamp_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[IN_PLACE_DX], clamp_back_span);
}

/* ---- mul_back, gather_back */

enum { MUL_BACK_DR, MUL_BACK_DX, MUL_BACK_X, MUL_BACK_R };

static void op_mul_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *dx = &op->views[MUL_BACK_DX], *r = &op->views[MUL_BACK_R];
    const uint32_t size = dx->cols / r->cols;
    const cam_range groups = share(n_rows(run, dx) * r->cols, run, thread);
    for (uint32_t g = groups.start; g < groups.end; g++) {
        const uint32_t row = g / r->cols, at = g % r->cols;
        const float by = row_of(r, row)[at];
        float *slope = row_of(dx, row) + at * size, *dr = row_of(&op->views[MUL_BACK_DR], row) + at;
        const float *x = row_of(&op->views[MUL_BACK_X], row) + at * size;
        vf sums[SUMS] = {{0}};
        EACH_SUMMED(i, k, size)
            sums[k] = vf_fma(vf_get(x + i, size - i), vf_get(slope + i, size - i), sums[k]);
        *dr = sums_total(sums);
        for (uint32_t i = 0; i < size; i += LANES)
            vf_put(slope + i, size - i, vf_set(by) * vf_get(slope + i, size - i));
    }
}

enum { GATHER_BACK_DX, GATHER_BACK_DY };

/* Each thread has a range of columns, since two outputs may be of one row. */
static void op_gather_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *dx = &op->views[GATHER_BACK_DX], *dy = &op->views[GATHER_BACK_DY];
    const cam_range cols = share(dx->cols, run, thread);
    for (uint32_t t = 0; op->attrs[0] == 0 && t < n_rows(run, dx); t++)
        memset(row_of(dx, t) + cols.start, 0, (cols.end - cols.start) * sizeof(float));
    for (uint32_t o = 0; o < n_rows(run, dy); o++) {
        float *to = row_of(dx, output_words(run, o)[OUTPUT_ROW]);
        for (uint32_t c = cols.start; c < cols.end; c++) to[c] += row_of(dy, o)[c];
    }
}

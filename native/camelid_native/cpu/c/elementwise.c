/* Elementwise ops. */
#include "parts.h"
#include "vmath.h"

enum { ADD_X, ADD_R };
enum { ADD_SCALE };
enum { MUL_X, MUL_R };
enum { SCALE_BY };
enum { SOFTCAP_CAP };
enum { CLAMP_LIMIT };
enum { TEMPERATURE_BY, TEMPERATURE_LENGTH };
enum { UNARY_ACT };
enum { GLU_Y, GLU_GATE, GLU_UP };
enum { GLU_WORD };
enum { AFFINE_Y, AFFINE_X };
enum { AFFINE_WEIGHT, AFFINE_BIAS };
enum { SPAN_COLS = 4096 };   /* columns per unit of work: smaller spans cost more than they gain */

INLINE float attr_of(const cam_op *op, uint32_t attr) { return (float)op->attrs[attr]; }
INLINE uint32_t word_of(const cam_op *op, uint32_t attr) { return (uint32_t)op->attrs[attr]; }

typedef struct { uint32_t row, start, end; } span;
typedef void span_work(const cam_op *op, span s);

/* Calls `work` on the thread's spans of a view. */
INLINE void each_span(const cam_op *op, const cam_run *run, uint32_t thread, const cam_view *view,
                      span_work *work) {
    uint32_t n_spans = (view->cols + SPAN_COLS - 1) / SPAN_COLS;
    cam_range mine = share(n_rows(run, view) * n_spans, run, thread);
    for (uint32_t i = mine.start; i < mine.end; i++) {
        uint32_t start = i % n_spans * SPAN_COLS, left = view->cols - start;
        work(op, (span){i / n_spans, start, start + (left < SPAN_COLS ? left : SPAN_COLS)});
    }
}

typedef vf one_work(const cam_op *op, vf x);
typedef vf two_work(const cam_op *op, vf a, vf b);

/* x = work(x), for view 0. */
INLINE void update_span(const cam_op *op, span s, one_work *work) {
    float *x = row_of(&op->views[0], s.row);
    for (uint32_t i = s.start; i < s.end; i += LANES)
        vf_put(x + i, s.end - i, work(op, vf_get(x + i, s.end - i)));
}

/* views[to] = work(views[a], views[b]). */
INLINE void pair_span(const cam_op *op, span s, uint32_t to, uint32_t a, uint32_t b, two_work *work) {
    float *y = row_of(&op->views[to], s.row);
    const float *p = row_of(&op->views[a], s.row), *q = row_of(&op->views[b], s.row);
    for (uint32_t i = s.start; i < s.end; i += LANES) {
        uint32_t left = s.end - i;
        vf_put(y + i, left, work(op, vf_get(p + i, left), vf_get(q + i, left)));
    }
}

static vf add_floats(const cam_op *op, vf x, vf r) { return vf_fma(vf_set(attr_of(op, ADD_SCALE)), r, x); }
static void add_span(const cam_op *op, span s) { pair_span(op, s, ADD_X, ADD_X, ADD_R, add_floats); }
static void op_add(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[ADD_X], add_span);
}

static vf scale_floats(const cam_op *op, vf x) { return x * vf_set(attr_of(op, SCALE_BY)); }
static void scale_span(const cam_op *op, span s) { update_span(op, s, scale_floats); }
static void op_scale(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[0], scale_span);
}

static vf cap_floats(const cam_op *op, vf x) {
    vf cap = vf_set(attr_of(op, SOFTCAP_CAP));
    return cap * vf_tanh(x / cap);
}
static void softcap_span(const cam_op *op, span s) { update_span(op, s, cap_floats); }
static void op_softcap(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[0], softcap_span);
}

/* The arguments' order keeps NaN. */
static vf clamp_floats(const cam_op *op, vf x) {
    vf limit = vf_set(attr_of(op, CLAMP_LIMIT));
    return vf_max(-limit, vf_min(limit, x));
}
static void clamp_span(const cam_op *op, span s) { update_span(op, s, clamp_floats); }
static void op_clamp(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[0], clamp_span);
}

static vf act_floats(const cam_op *op, vf x) { return vf_act(word_of(op, UNARY_ACT), x); }
static void unary_span(const cam_op *op, span s) { update_span(op, s, act_floats); }
static void op_unary(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[0], unary_span);
}

enum { XIELU_POSITIVE, XIELU_NEGATIVE, XIELU_LINEAR, XIELU_LEAST };

/* xIELU (arXiv 2411.13010). The argument of expm1 is at most 0, as is XIELU_LEAST in every model. */
static vf xielu_floats(const cam_op *op, vf x) {
    const float *alpha = AT(float, op->weights[0].at);
    vf less = vf_expm1_negative(vf_min(VF(0.0f), vf_min(vf_set(alpha[XIELU_LEAST]), x))) - x;
    vf more = vf_set(alpha[XIELU_POSITIVE]) * x * x;
    return vf_set(alpha[XIELU_LINEAR]) * x + vf_pick(x > 0.0f, more, vf_set(alpha[XIELU_NEGATIVE]) * less);
}
static void xielu_span(const cam_op *op, span s) { update_span(op, s, xielu_floats); }
static void op_xielu(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[0], xielu_span);
}

/* x *= 1 + by * log(1 + (position + 1) / length). */
static void op_temperature(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[0];
    const cam_range rows = share(n_rows(run, x), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        uint32_t steps = (row_words(run, t)[ROW_POSITIONS] + 1) / (uint32_t)op->attrs[TEMPERATURE_LENGTH];
        vf factor = vf_fma(vf_set(attr_of(op, TEMPERATURE_BY)), vf_log(vf_set((float)(steps + 1))), VF(1.0f));
        float *row = row_of(x, t);
        for (uint32_t i = 0; i < x->cols; i += LANES)
            vf_put(row + i, x->cols - i, vf_get(row + i, x->cols - i) * factor);
    }
}

static vf gate_floats(const cam_op *op, vf gate, vf up) { return vf_gate(word_of(op, GLU_WORD), gate, up); }
static void glu_span(const cam_op *op, span s) { pair_span(op, s, GLU_Y, GLU_GATE, GLU_UP, gate_floats); }
static void op_glu(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[GLU_Y], glu_span);
}

static vf mul_floats(const cam_op *op, vf x, vf r) { return (void)op, x * r; }
static void mul_span(const cam_op *op, span s) { pair_span(op, s, MUL_X, MUL_X, MUL_R, mul_floats); }

/* x *= r, with one factor of r per group of columns of x. */
static void mul_groups(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[MUL_X], *r = &op->views[MUL_R];
    uint32_t size = x->cols / r->cols;
    cam_range groups = share(n_rows(run, x) * r->cols, run, thread);
    for (uint32_t g = groups.start; g < groups.end; g++) {
        float *group = row_of(x, g / r->cols) + g % r->cols * size;
        vf factor = vf_set(row_of(r, g / r->cols)[g % r->cols]);
        for (uint32_t i = 0; i < size; i += LANES)
            vf_put(group + i, size - i, vf_get(group + i, size - i) * factor);
    }
}

static void op_mul(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[MUL_X];
    if (op->views[MUL_R].cols == x->cols) each_span(op, run, thread, x, mul_span);
    else mul_groups(op, run, thread);
}

static void affine_span(const cam_op *op, span s) {
    float *y = row_of(&op->views[AFFINE_Y], s.row);
    const float *x = row_of(&op->views[AFFINE_X], s.row);
    const float *weight = AT(float, op->weights[AFFINE_WEIGHT].at);
    const float *bias = AT(float, op->weights[AFFINE_BIAS].at);
    const int is_one = op->weights[AFFINE_WEIGHT].cols == 1;
    for (uint32_t i = s.start; i < s.end; i += LANES) {
        uint32_t left = s.end - i;
        vf sum = vf_get(x + i, left) * (is_one ? vf_set(weight[0]) : vf_get(weight + i, left));
        vf_put(y + i, left, bias ? sum + vf_get(bias + i, left) : sum);
    }
}
static void op_affine(const cam_op *op, const cam_run *run, uint32_t thread) {
    each_span(op, run, thread, &op->views[AFFINE_Y], affine_span);
}

/* Ops with a sum over each row, or over each group of a row's columns. */
#include "parts.h"
#include "vmath.h"

enum { NORM_Y, NORM_X };
enum { NORM_GAIN, NORM_BIAS };
enum { NORM_EPS, NORM_KIND, NORM_SIZE };
enum { ADD_NORM_Y, ADD_NORM_X, ADD_NORM_R };
enum { ADD_NORM_GAIN };
enum { ADD_NORM_EPS, ADD_NORM_SCALE };
enum { LENGTH_Y, LENGTH_X };
enum { CUTOFF_DEVIATIONS };

/* y = (x - mean) * by, then times gain and plus bias if present. */
typedef struct {
    float mean, by;
    const float *gain, *bias;
} normal;

static void put_normal(float *y, const float *x, uint32_t n, normal how) {
    for (uint32_t i = 0; i < n; i += LANES) {
        vf v = (vf_get(x + i, n - i) - vf_set(how.mean)) * vf_set(how.by);
        if (how.gain) v *= vf_get(how.gain + i, n - i);
        if (how.bias) v += vf_get(how.bias + i, n - i);
        vf_put(y + i, n - i, v);
    }
}

INLINE float inverse_root(float x) { return 1.0f / __builtin_sqrtf(x); }
static float mean_square(const float *x, uint32_t n, float mean) {
    return sum_squares(x, n, mean) / (float)n;
}

/* 1 / sqrt(max(sum of x^2, eps^2)). The floor is above 0, so that a row of zeros stays zero; NaN stays
 * NaN. */
static float l2_factor(const float *x, uint32_t n, double eps) {
    float sum = sum_squares(x, n, 0.0f), least = (float)(eps * eps);
    if (least < 0x1p-126f) least = 0x1p-126f;
    return inverse_root(sum < least ? least : sum);
}

static normal normal_of(const cam_op *op, const float *x, uint32_t n) {
    double eps = op->attrs[NORM_EPS];
    switch ((uint32_t)op->attrs[NORM_KIND]) {
    case WORD_l2: return (normal){.by = l2_factor(x, n, eps)};
    case WORD_layer: {
        float mean = sum_floats(x, n) / (float)n;
        return (normal){.mean = mean, .by = inverse_root(mean_square(x, n, mean) + (float)eps)};
    }
    default: return (normal){.by = inverse_root(mean_square(x, n, 0.0f) + (float)eps)};
    }
}

/* Threads share groups. The gain has a row per group, or one row for all groups. */
static void op_norm(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[NORM_X];
    const cam_weight *gain = &op->weights[NORM_GAIN];
    uint32_t size = op->attrs[NORM_SIZE] > 0 ? (uint32_t)op->attrs[NORM_SIZE] : x->cols;
    uint32_t n_groups = x->cols / size;
    cam_range mine = share(n_rows(run, x) * n_groups, run, thread);
    for (uint32_t i = mine.start; i < mine.end; i++) {
        uint32_t row = i / n_groups, group = i % n_groups;
        const float *from = row_of(x, row) + group * size;
        normal how = normal_of(op, from, size);
        if (gain->at) how.gain = AT(float, gain->at) + (gain->rows * gain->cols > size ? group * size : 0);
        how.bias = AT(float, op->weights[NORM_BIAS].at);
        put_normal(row_of(&op->views[NORM_Y], row) + group * size, from, size, how);
    }
}

static void add_scaled(float *x, const float *r, uint32_t n, float scale) {
    for (uint32_t i = 0; i < n; i += LANES)
        vf_put(x + i, n - i, vf_fma(vf_set(scale), vf_get(r + i, n - i), vf_get(x + i, n - i)));
}

static void op_add_norm(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *view = &op->views[ADD_NORM_X];
    const float *gain = AT(float, op->weights[ADD_NORM_GAIN].at);
    cam_range rows = share(n_rows(run, view), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        float *x = row_of(view, t);
        add_scaled(x, row_of(&op->views[ADD_NORM_R], t), view->cols, (float)op->attrs[ADD_NORM_SCALE]);
        float by = inverse_root(mean_square(x, view->cols, 0.0f) + (float)op->attrs[ADD_NORM_EPS]);
        put_normal(row_of(&op->views[ADD_NORM_Y], t), x, view->cols, (normal){.by = by, .gain = gain});
    }
}

static void op_length(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[LENGTH_X], *y = &op->views[LENGTH_Y];
    uint32_t size = x->cols / y->cols;
    cam_range mine = share(n_rows(run, x) * y->cols, run, thread);
    for (uint32_t i = mine.start; i < mine.end; i++) {
        uint32_t row = i / y->cols, group = i % y->cols;
        row_of(y, row)[group] = __builtin_sqrtf(sum_squares(row_of(x, row) + group * size, size, 0.0f));
    }
}

static void cut_off(float *x, uint32_t n, float deviations) {
    float mean = sum_floats(x, n) / (float)n;
    float level = mean + deviations * __builtin_sqrtf(mean_square(x, n, mean));
    for (uint32_t i = 0; i < n; i += LANES)
        vf_put(x + i, n - i, vf_relu(vf_get(x + i, n - i) - vf_set(level)));
}

static void op_cutoff(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[0];
    float deviations = (float)op->attrs[CUTOFF_DEVIATIONS];
    cam_range rows = share(n_rows(run, x), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) cut_off(row_of(x, t), x->cols, deviations);
}

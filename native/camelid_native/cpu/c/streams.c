/* concat, combine, mix: several vectors in one row, concatenated or summed. */
#include "parts.h"

enum { CONCAT_Y, CONCAT_A, CONCAT_B };
enum { COMBINE_Y, COMBINE_X, COMBINE_PROBS };
enum { MIX_Y, MIX_X, MIX_COEFS };
enum { MIX_SIZE };

static void op_concat(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *y = &op->views[CONCAT_Y], *a = &op->views[CONCAT_A], *b = &op->views[CONCAT_B];
    cam_range rows = share(n_rows(run, y), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        memmove(row_of(y, t), row_of(a, t), 4 * (size_t)a->cols);
        memmove(row_of(y, t) + a->cols, row_of(b, t), 4 * (size_t)b->cols);
    }
}

/* y = sum over j of coefs[j] * x[j], for x [n, size]. */
static void weighted_sum(float *y, const float *x, const float *coefs, uint32_t n, uint32_t size) {
    for (uint32_t i = 0; i < size; i += LANES) {
        vf sum = {0};
        for (uint32_t j = 0; j < n; j++)
            sum = vf_fma(vf_set(coefs[j]), vf_get(x + (uint64_t)j * size + i, size - i), sum);
        vf_put(y + i, size - i, sum);
    }
}

static void op_combine(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *y = &op->views[COMBINE_Y], *x = &op->views[COMBINE_X], *probs = &op->views[COMBINE_PROBS];
    cam_range rows = share(n_rows(run, y), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++)
        weighted_sum(row_of(y, t), row_of(x, t), row_of(probs, t), probs->cols, y->cols);
}

/* Threads share the groups of y. */
static void op_mix(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *y = &op->views[MIX_Y], *x = &op->views[MIX_X];
    uint32_t size = (uint32_t)op->attrs[MIX_SIZE], n_to = y->cols / size, n_from = x->cols / size;
    cam_range groups = share(n_rows(run, y) * n_to, run, thread);
    for (uint32_t g = groups.start; g < groups.end; g++) {
        uint32_t row = g / n_to, to = g % n_to;
        const float *coefs = row_of(&op->views[MIX_COEFS], row) + to * n_from;
        weighted_sum(row_of(y, row) + to * size, row_of(x, row), coefs, n_from, size);
    }
}

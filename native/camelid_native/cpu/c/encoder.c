/* Encoder ops: attention among the rows of the step, pooling, floats as results. */
#include "attend_rows.h"
#include "words.h"

enum { ATTEND_ROWS_Y, ATTEND_ROWS_Q, ATTEND_ROWS_K, ATTEND_ROWS_V, ATTEND_ROWS_BIAS = 0 };
enum { ATTEND_ROWS_N_HEADS, ATTEND_ROWS_N_KV_HEADS, ATTEND_ROWS_SCALE, ATTEND_ROWS_MASK, ATTEND_ROWS_WINDOW };
enum { POOL_Y, POOL_X, POOL_KIND = 0 };
enum { GATHER_ROWS_Y, GATHER_ROWS_X };

/* Keys are the rows of the same sequence, counted from its first row. */
static keys_seen seen_in_step(const attend_op *a, uint32_t row) {
    const uint32_t *sequence = sequence_words(a->run, row_words(a->run, row)[ROW_SEQUENCE]);
    const uint32_t n = sequence[SEQUENCE_N_ROWS], self = row - sequence[SEQUENCE_FIRST_ROW];
    const uint32_t mask = (uint32_t)a->op->attrs[ATTEND_ROWS_MASK];
    const uint32_t reach = (uint32_t)a->op->attrs[ATTEND_ROWS_WINDOW] / 2;
    keys_seen seen = {.start = 0, .end = n, .border = UINT32_MAX, .self = self};
    if (mask == WORD_causal) seen.end = self + 1;
    if (mask == WORD_symmetric && self > reach) seen.start = self - reach;
    if (mask == WORD_symmetric && self + reach + 1 < n) seen.end = self + reach + 1;
    return seen;
}

static key_place place_in_step(const attend_op *a, uint32_t row, uint32_t tier, uint32_t tensor) {
    (void)tier;
    const cam_view *view = &a->op->views[tensor == KEYS ? ATTEND_ROWS_K : ATTEND_ROWS_V];
    const uint32_t sequence = row_words(a->run, row)[ROW_SEQUENCE];
    return (key_place){
        .at = (uintptr_t)row_of(view, sequence_words(a->run, sequence)[SEQUENCE_FIRST_ROW]),
        .row_bytes = view->stride * sizeof(float),
        .unit_rows = UINT32_MAX,
        .type = KEYS_F32,
        .head_cols = view->cols / a->n_kv_heads,
    };
}

/* The bias has a row per distance from -n to n; the middle row is distance 0. */
static attend_op attend_rows_of(const cam_op *op, const cam_run *run) {
    attend_op a = {
        .op = op, .run = run, .q = &op->views[ATTEND_ROWS_Q], .y = &op->views[ATTEND_ROWS_Y],
        .n_kv_heads = (uint32_t)op->attrs[ATTEND_ROWS_N_KV_HEADS],
        .seen = seen_in_step, .place = place_in_step,
    };
    const int32_t most = (int32_t)(op->weights[ATTEND_ROWS_BIAS].rows / 2);
    set_heads(&a, (uint32_t)op->attrs[ATTEND_ROWS_N_HEADS], op->attrs[ATTEND_ROWS_SCALE]);
    set_bias(&a.how, &op->weights[ATTEND_ROWS_BIAS], 1, -most, most);
    return a;
}

static void op_attend_rows(const cam_op *op, const cam_run *run, uint32_t thread) {
    const attend_op a = attend_rows_of(op, run);
    attend_all(&a, thread);
}

static uint64_t scratch_attend_rows(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    const attend_op a = attend_rows_of(op, NULL);
    return attend_bytes(&a, n_threads);
}

/* y = `by` times the sum of rows [first, end). */
static void sum_rows(const cam_view *x, uint32_t first, uint32_t end, float by, float *y) {
    memset(y, 0, x->cols * sizeof(float));
    for (uint32_t t = first; t < end; t++)
        for (uint32_t i = 0; i < x->cols; i++) y[i] += row_of(x, t)[i];
    for (uint32_t i = 0; i < x->cols; i++) y[i] *= by;
}

static void op_pool(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[POOL_X], *y = &op->views[POOL_Y];
    const cam_range outputs = share(n_rows(run, y), run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++) {
        const uint32_t *sequence = sequence_words(run, output_words(run, o)[OUTPUT_SEQUENCE]);
        uint32_t first = sequence[SEQUENCE_FIRST_ROW], end = first + sequence[SEQUENCE_N_ROWS];
        if ((uint32_t)op->attrs[POOL_KIND] == WORD_cls) end = first + 1;
        if ((uint32_t)op->attrs[POOL_KIND] == WORD_last) first = end - 1;
        sum_rows(x, first, end, 1.0f / (float)(end - first), row_of(y, o));
    }
}

/* Result: id 0, status, logit 0, log-sum-exp 0 for each output; then the floats. */
static void op_emit(const cam_op *op, const cam_run *run, uint32_t thread) {
    enum { RESULT_WORDS = 4, RESULT_STATUS = 1, STATUS_NAN = 1 };
    const cam_view *x = &op->views[0];
    const uint32_t n = n_rows(run, x);
    const uint64_t row_bytes = x->cols * sizeof(float);
    const cam_range outputs = share(n, run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++) {
        uint32_t words[RESULT_WORDS] = {0};
        const float *row = row_of(x, o);
        for (uint32_t i = 0; i < x->cols; i++)
            if (row[i] != row[i]) words[RESULT_STATUS] = STATUS_NAN;
        memcpy(run->result + o * sizeof words, words, sizeof words);
        memcpy(run->result + n * sizeof words + o * row_bytes, row, row_bytes);
    }
}

static void op_gather_rows(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[GATHER_ROWS_X], *y = &op->views[GATHER_ROWS_Y];
    const cam_range outputs = share(n_rows(run, y), run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++)
        memcpy(row_of(y, o), row_of(x, output_words(run, o)[OUTPUT_ROW]), x->cols * sizeof(float));
}

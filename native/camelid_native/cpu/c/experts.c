/* linear_experts: rows are gathered by expert, so that each expert's matrix is read once for all its rows. */

enum { EXPERTS_Y, EXPERTS_X, EXPERTS_IDS };

/* In scratch, after the activations: places sorted by expert, then by row and slot; start of each expert. */
typedef struct {
    cam_place *order;
    uint32_t *starts;         /* [experts + 1] */
} cam_gathered;

static uint64_t experts_places(const cam_op *op, const cam_program *program) {
    return (uint64_t)most_rows(&op->views[EXPERTS_Y], program) * op->views[EXPERTS_IDS].cols;
}
static cam_gathered gathered_at(const cam_op *op, const cam_program *program) {
    const cam_weight *weight = &op->weights[LINEAR_WEIGHT];
    const uint64_t n = experts_places(op, program);
    const uint64_t after = whole_lines(n * act_bytes(layouts[weight->type], weight->cols));
    cam_place *order = AT(cam_place, program->scratch + after);
    return (cam_gathered){order, (uint32_t *)(order + n)};
}
static uint64_t scratch_linear_experts(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)n_threads;
    const uint32_t *end = gathered_at(op, program).starts + op->weights[LINEAR_WEIGHT].stack + 1;
    return whole_lines((uintptr_t)end - program->scratch);
}

/* Expert of a slot. An id outside the stack, which no router produces, counts as expert 0. */
INLINE uint32_t expert_at(const cam_op *op, uint32_t row, uint32_t slot) {
    const float id = row_of(&op->views[EXPERTS_IDS], row)[slot];
    return id >= 0 && id < (float)op->weights[LINEAR_WEIGHT].stack ? (uint32_t)id : 0;
}

/* Stable counting sort of places by expert. */
static void gather(const cam_op *op, uint32_t rows, cam_gathered to) {
    const uint32_t slots = op->views[EXPERTS_IDS].cols, experts = op->weights[LINEAR_WEIGHT].stack;
    memset(to.starts, 0, sizeof *to.starts * (experts + 1));
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t s = 0; s < slots; s++) to.starts[expert_at(op, r, s) + 1]++;
    for (uint32_t e = 0; e < experts; e++) to.starts[e + 1] += to.starts[e];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t s = 0; s < slots; s++) to.order[to.starts[expert_at(op, r, s)]++] = (cam_place){r, s};
    /* The loop has moved each start to its expert's end. */
    memmove(to.starts + 1, to.starts, sizeof *to.starts * experts);
    to.starts[0] = 0;
}

INLINE cam_range expert_rows(const cam_gathered *gathered, uint32_t expert) {
    return (cam_range){gathered->starts[expert], gathered->starts[expert + 1]};
}

static void op_linear_experts(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[EXPERTS_X], *y = &op->views[EXPERTS_Y];
    const cam_weight *weight = &op->weights[LINEAR_WEIGHT], *bias = &op->weights[LINEAR_BIAS];
    const cam_gathered gathered = gathered_at(op, run->program);
    const uint32_t rows = n_rows(run, y);
    const uint32_t x_cols = x->cols == weight->cols ? 0 : weight->cols;  /* 0: one row for all slots */
    const cam_places places = {x, y, rows, x_cols, weight->rows, gathered.order};
    if (thread == 0) gather(op, rows, gathered);
    cam_meet(run, thread);
    for (uint32_t e = 0; e < weight->stack; e++) {
        const cam_matrix matrix = matrix_at(weight, bias, e);
        quantize(&places, expert_rows(&gathered, e), &matrix, scratch_of(run), run, thread);
    }
    cam_meet(run, thread);
    for (uint32_t e = 0; e < weight->stack; e++) {
        const cam_matrix matrix = matrix_at(weight, bias, e);
        const cam_range panels = share_panels(&matrix, run, thread);
        multiply(&matrix, &places, expert_rows(&gathered, e), scratch_of(run), panels);
    }
}

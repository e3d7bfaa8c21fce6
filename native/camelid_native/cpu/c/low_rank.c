/* Low-rank terms of adapters. A slot has, for each site, the layout of op_rows_adapters.py: R scales, the rank
 * in four floats, then A [experts, R, in] and B [experts, R, out] of float32 or float16. The first of ops that
 * follow each other over one x computes the terms of all. A term of one row and expert is a unit. With enough
 * units each thread computes whole ones; with fewer, threads share the dot products of A's rows, meet, and
 * share spans of columns of y. The order of each sum depends on the sizes alone. */
#include "parts.h"
#include "run.h"

enum { LOW_RANK_Y, LOW_RANK_X, LOW_RANK_IDS };
enum { LOW_RANK_TENSOR, LOW_RANK_RANK, LOW_RANK_N_IN, LOW_RANK_SCALE, LOW_RANK_DEFERRED, LOW_RANK_EPS };
enum { LOW_RANK_EXPERTS = 3 };                 /* attribute of low_rank_experts */
enum { LOW_RANK_HEADER = 4, QUAD_FLOATS = 4 };
enum { LOW_RANK_DOTS = 4, LOW_RANK_VECTORS = 8, LOW_RANK_SPAN = 128 };
enum { LOW_RANK_HALF = 1 };                    /* GGUF type id of float16 */
/* Units per thread from which threads compute whole ones; with fewer, an odd unit at the end costs more. */
enum { LOW_RANK_UNITS = 4 };

/* The site of one op. */
typedef struct {
    const cam_op *op;
    const cam_run *run;
    const cam_view *y, *x;
    uint32_t most, n_in, n_out, n_experts, n_used;  /* n_used: experts of a row; 1 for a single matrix */
    uint32_t value_bytes;                           /* of A and B */
    float scale;
} low_rank;

/* The term of one row and expert; rank 0 means none. */
typedef struct {
    const float *scales;
    const uint8_t *a, *b;
    uint32_t rank;
} low_rank_term;

/* Work of one op and of those that follow it over its x. */
typedef struct {
    const cam_op *ops;
    const cam_run *run;
    uint32_t n_sites, rows, n_used, most;
    int has_experts;
} low_rank_work;

/* One unit: a site, a row and one of the row's experts. */
typedef struct {
    low_rank site;
    uint32_t row, used;
    low_rank_term term;
    float *u;                                       /* [most]: scales[i] * dot(A[i], x) */
} low_rank_unit;

static low_rank low_rank_of(const cam_op *op, const cam_run *run, int has_experts) {
    const uint32_t n_used = has_experts ? op->views[LOW_RANK_IDS].cols : 1;
    return (low_rank){
        .op = op, .run = run, .y = &op->views[LOW_RANK_Y], .x = &op->views[LOW_RANK_X],
        .most = (uint32_t)op->attrs[LOW_RANK_RANK], .n_in = (uint32_t)op->attrs[LOW_RANK_N_IN],
        .n_out = op->views[LOW_RANK_Y].cols / n_used, .n_used = n_used,
        .n_experts = has_experts ? (uint32_t)op->attrs[LOW_RANK_EXPERTS] : 1,
        .value_bytes = op->states[0].type == LOW_RANK_HALF ? sizeof(uint16_t) : sizeof(float),
        .scale = has_experts ? 1.0f : (float)op->attrs[LOW_RANK_SCALE],
    };
}

/* Adapter slot of a row of y, which is of a token or of an output. */
static uint32_t low_rank_slot(const cam_op *op, const cam_run *run, uint32_t row) {
    const uint32_t sequence = op->views[LOW_RANK_Y].rows == ROWS_O ? output_words(run, row)[OUTPUT_SEQUENCE]
                                                                   : row_words(run, row)[ROW_SEQUENCE];
    return sequence_words(run, sequence)[SEQUENCE_ADAPTER];
}

/* An id outside the stack counts as expert 0, as in linear_experts. */
static uint32_t low_rank_expert(const low_rank *l, uint32_t row, uint32_t used) {
    if (l->n_experts == 1) return 0;
    const float id = row_of(&l->op->views[LOW_RANK_IDS], row)[used];
    return id >= 0 && id < (float)l->n_experts ? (uint32_t)id : 0;
}

static low_rank_term low_rank_term_of(const low_rank *l, uint32_t row, uint32_t used) {
    const cam_state *state = &l->op->states[0];
    const uint32_t slot = low_rank_slot(l->op, l->run, row);
    if (slot == 0 || slot >= state->n_units) return (low_rank_term){0};
    const float *header = AT(float, state->at[0] + (uint64_t)slot * state->row_bytes[0]);
    const uint64_t each = (uint64_t)l->most * l->value_bytes, expert = low_rank_expert(l, row, used);
    const uint8_t *a = (const uint8_t *)(header + l->most + LOW_RANK_HEADER);
    const uint8_t *b = a + l->n_experts * each * l->n_in;
    const uint32_t rank = (uint32_t)header[l->most];
    return (low_rank_term){header, a + expert * each * l->n_in, b + expert * each * l->n_out,
                           rank < l->most ? rank : l->most};
}

/* A vector of values i to i + LANES of A or B, of which `left` exist. */
INLINE vf low_rank_get(const uint8_t *values, uint64_t i, uint32_t left, int is_half) {
    if (!is_half) return vf_get((const float *)values + i, left);
    const uint16_t *from = (const uint16_t *)values + i;
    if (left >= LANES) return vf_half(from);
    uint16_t some[LANES] = {0};
    memcpy(some, from, left * sizeof *some);
    return vf_half(some);
}

/* Dot products of x and n rows of A; n is a constant, so that all sums are in registers. */
INLINE void low_rank_dot(const uint8_t *a, const float *x, uint32_t n_in, uint32_t n, int is_half,
                         float *dots) {
    vf sums[LOW_RANK_DOTS][SUMS] = {0};
    uint32_t i = 0;
    for (; i + SUMS * LANES <= n_in; i += SUMS * LANES)
        for (uint32_t k = 0; k < SUMS; k++)
            for (uint32_t r = 0; r < n; r++)
                sums[r][k] = vf_fma(low_rank_get(a, (uint64_t)r * n_in + i + k * LANES, LANES, is_half),
                                    vf_load(x + i + k * LANES), sums[r][k]);
    for (uint32_t k = 0; k < SUMS; k++, i += LANES)  /* a constant bound, for the same reason */
        for (uint32_t r = 0; r < n && i < n_in; r++)
            sums[r][k] = vf_fma(low_rank_get(a, (uint64_t)r * n_in + i, n_in - i, is_half),
                                vf_get(x + i, n_in - i), sums[r][k]);
    for (uint32_t r = 0; r < n; r++) dots[r] = sums_total(sums[r]);
}

/* The divisor's inverse of a deferred norm, whose sums of squares follow its n values; else 1. */
static float low_rank_inverse(const low_rank *l, const float *x) {
    if (l->n_used > 1 || l->x->cols == l->n_in) return 1.0f;
    const float mean = sum_floats(x + l->n_in, l->n_in / QUAD_FLOATS) / (float)l->n_in;
    return 1.0f / __builtin_sqrtf(mean + (float)l->op->attrs[LOW_RANK_EPS]);
}

INLINE void low_rank_dots_of(const low_rank_unit *unit, const float *x, cam_range ranks, int is_half) {
    const low_rank *l = &unit->site;
    const uint64_t row_bytes = (uint64_t)l->n_in * l->value_bytes;
    uint32_t i = ranks.start;
    for (; i + LOW_RANK_DOTS <= ranks.end; i += LOW_RANK_DOTS)
        low_rank_dot(unit->term.a + i * row_bytes, x, l->n_in, LOW_RANK_DOTS, is_half, unit->u + i);
    for (; i < ranks.end; i++)
        low_rank_dot(unit->term.a + i * row_bytes, x, l->n_in, 1, is_half, unit->u + i);
}

/* u for some of the unit's ranks. */
static void low_rank_dots(const low_rank_unit *unit, cam_range ranks) {
    const low_rank *l = &unit->site;
    const int has_own = l->x->cols > l->n_in && l->n_used > 1;  /* else an x of one slot serves all */
    const uint32_t own = has_own ? unit->used : 0;
    const float *x = row_of(l->x, unit->row) + (uint64_t)own * l->n_in;
    if (ranks.end > unit->term.rank) ranks.end = unit->term.rank;
    if (ranks.start >= ranks.end) return;
    if (l->value_bytes == sizeof(float)) low_rank_dots_of(unit, x, ranks, 0);
    else low_rank_dots_of(unit, x, ranks, 1);
    const float inverse = low_rank_inverse(l, x);
    for (uint32_t i = ranks.start; i < ranks.end; i++) unit->u[i] *= unit->term.scales[i] * inverse;
}

/* y += scale * sum of u[i] * B[i] for n vectors from column c on; n is a constant. */
INLINE void low_rank_columns(const low_rank_unit *unit, float *y, uint32_t c, uint32_t end, uint32_t n,
                             int is_half) {
    const low_rank *l = &unit->site;
    vf sums[LOW_RANK_VECTORS] = {0};
    for (uint32_t i = 0; i < unit->term.rank; i++)
        for (uint32_t k = 0; k < n; k++)
            sums[k] = vf_fma(vf_set(unit->u[i]),
                             low_rank_get(unit->term.b, (uint64_t)i * l->n_out + c + k * LANES,
                                          n > 1 ? LANES : end - c, is_half), sums[k]);
    for (uint32_t k = 0; k < n; k++, c += LANES)
        vf_put(y + c, end - c, vf_fma(vf_set(l->scale), sums[k], vf_get(y + c, end - c)));
}

INLINE void low_rank_span_of(const low_rank_unit *unit, cam_range cols, int is_half) {
    float *y = row_of(unit->site.y, unit->row) + (uint64_t)unit->used * unit->site.n_out;
    uint32_t c = cols.start;
    for (; c + LOW_RANK_VECTORS * LANES <= cols.end; c += LOW_RANK_VECTORS * LANES)
        low_rank_columns(unit, y, c, cols.end, LOW_RANK_VECTORS, is_half);
    for (; c < cols.end; c += LANES) low_rank_columns(unit, y, c, cols.end, 1, is_half);
}

/* The term of some columns of y. */
static void low_rank_span(const low_rank_unit *unit, cam_range cols) {
    if (unit->term.rank == 0) return;
    if (unit->site.value_bytes == sizeof(float)) low_rank_span_of(unit, cols, 0);
    else low_rank_span_of(unit, cols, 1);
}

static int low_rank_any(const low_rank_work *w) {
    for (uint32_t row = 0; row < w->rows; row++)
        if (low_rank_slot(w->ops, w->run, row)) return 1;
    return 0;
}

/* Sites of an op and of those that follow it over its x. */
static uint32_t low_rank_sites(const cam_op *op, const cam_program *program) {
    const cam_op *end = AT(const cam_op, program->ops) + program->n_ops;
    uint32_t n = 1;
    while (op + n < end && op[n].flags & FLAG_JOINED) n++;
    return n;
}

/* Units of a row and expert follow each other, so that their x is read once. */
static low_rank_unit low_rank_unit_of(const low_rank_work *w, uint32_t number) {
    const uint32_t place = number / w->n_sites;
    low_rank_unit unit = {
        .site = low_rank_of(&w->ops[number % w->n_sites], w->run, w->has_experts),
        .row = place / w->n_used, .used = place % w->n_used,
        .u = AT(float, w->run->program->scratch) + (uint64_t)number * w->most,
    };
    unit.term = low_rank_term_of(&unit.site, unit.row, unit.used);
    return unit;
}

/* The i-th of n parts of some values, in whole groups of `each`. */
static cam_range low_rank_part(uint32_t n_values, uint32_t each, uint32_t i, uint32_t n) {
    const cam_range groups = cut_range((cam_range){0, (n_values + each - 1) / each}, i, n);
    const uint32_t end = groups.end * each;
    return (cam_range){groups.start * each, end < n_values ? end : n_values};
}

/* Each thread computes a part of each unit. */
static void low_rank_split(const low_rank_work *w, uint32_t n_units, uint32_t thread) {
    const uint32_t n = w->run->n_threads;
    for (uint32_t i = 0; i < n_units; i++) {
        const low_rank_unit unit = low_rank_unit_of(w, i);
        low_rank_dots(&unit, low_rank_part(w->most, LOW_RANK_DOTS, (thread + i) % n, n));
    }
    cam_meet(w->run, thread);
    for (uint32_t i = 0; i < n_units; i++) {
        const low_rank_unit unit = low_rank_unit_of(w, i);
        low_rank_span(&unit, low_rank_part(unit.site.n_out, LOW_RANK_SPAN, (thread + i) % n, n));
    }
}

static void low_rank_whole(const low_rank_work *w, cam_range units) {
    for (uint32_t i = units.start; i < units.end; i++) {
        const low_rank_unit unit = low_rank_unit_of(w, i);
        low_rank_dots(&unit, (cam_range){0, w->most});
        low_rank_span(&unit, (cam_range){0, unit.site.n_out});
    }
}

static void low_rank_run(const cam_op *op, const cam_run *run, int has_experts, uint32_t thread) {
    const low_rank_work w = {
        .ops = op, .run = run, .n_sites = low_rank_sites(op, run->program), .has_experts = has_experts,
        .rows = n_rows(run, &op->views[LOW_RANK_Y]), .n_used = has_experts ? op->views[LOW_RANK_IDS].cols : 1,
        .most = (uint32_t)op->attrs[LOW_RANK_RANK],
    };
    const uint32_t n_units = w.rows * w.n_used * w.n_sites;
    if (!low_rank_any(&w)) return;
    if (run->n_threads > 1 && n_units < LOW_RANK_UNITS * run->n_threads) {
        low_rank_split(&w, n_units, thread);
        return;
    }
    if (run->n_threads == 1) low_rank_whole(&w, (cam_range){0, n_units});
    else for (cam_range mine; mine = cam_take(run, n_units, 1, thread), mine.start < mine.end;)
        low_rank_whole(&w, mine);
}

static void op_low_rank(const cam_op *op, const cam_run *run, uint32_t thread) {
    low_rank_run(op, run, 0, thread);
}

static void op_low_rank_experts(const cam_op *op, const cam_run *run, uint32_t thread) {
    low_rank_run(op, run, 1, thread);
}

static uint64_t scratch_low_rank(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)n_threads;
    const uint64_t units = (uint64_t)most_rows(&op->views[LOW_RANK_Y], program) * low_rank_sites(op, program);
    return whole_lines(units * (uint64_t)op->attrs[LOW_RANK_RANK] * sizeof(float));
}

static uint64_t scratch_low_rank_experts(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    return scratch_low_rank(op, program, n_threads) * op->views[LOW_RANK_IDS].cols;
}

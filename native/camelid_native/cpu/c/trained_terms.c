/* shrink, expand, outer: products of rows with a matrix M [R, n] of the trained values; R is small.
 *
 * All are tiles of exact.c: an output is one sum, over columns, over R, or over rows, in this order. */
#include "parts.h"
#include "run.h"

enum { SHRINK_U, SHRINK_X, SHRINK_ACTS };
enum { EXPAND_Y, EXPAND_U, EXPAND_ACTS };
enum { OUTER_U, OUTER_Z, OUTER_ACTS };
enum { TERM_AT, TERM_SCALE, TERM_ADDS };
enum { TENSOR_VALUE, TENSOR_GRADIENT };
enum { MOST_TERM_RANK = 64 };

INLINE float *term_of(const cam_op *op, uint32_t tensor) {
    return AT(float, op->states[0].at[tensor]) + (uint64_t)op->attrs[TERM_AT];
}
/* scale * acts of a row. */
INLINE float factor_of(const cam_op *op, uint32_t acts, uint32_t row) {
    const float scale = (float)op->attrs[TERM_SCALE];
    return op->views[acts].at ? scale * *row_of(&op->views[acts], row) : scale;
}

/* Columns of a panel that begins at column `first`: 16, or those that are left. */
INLINE uint32_t width_of(uint32_t cols, uint32_t first) {
    return cols - first < PANEL_ROWS ? cols - first : PANEL_ROWS;
}
/* 16 columns of k rows from `first` on: in place if there are 16, else a copy padded with zeros. */
static cam_rows columns_of(cam_rows from, uint32_t cols, uint32_t first, uint32_t k, float *copy) {
    const uint32_t n = width_of(cols, first);
    if (n == PANEL_ROWS) return (cam_rows){from.at + first, from.stride};
    for (uint32_t i = 0; i < k; i++)
        for (uint32_t c = 0; c < PANEL_ROWS; c++)
            copy[PANEL_ROWS * i + c] = c < n ? from.at[from.stride * i + first + c] : 0.0f;
    return (cam_rows){copy, PANEL_ROWS};
}

/* Loads and stores the first n columns of a tile's row. */
INLINE void get_sums(vf *sums, const float *from, uint32_t n) {
    for (uint32_t i = 0; i < PANEL_ROWS; i += LANES) sums[i / LANES] = i < n ? vf_get(from + i, n - i) : (vf){0};
}
INLINE void put_sums(float *to, uint32_t n, const vf *sums) {
    for (uint32_t i = 0; i < n; i += LANES) vf_put(to + i, n - i, sums[i / LANES]);
}

/* ---- shrink: a is x, b is M transposed, in each thread's scratch */

static uint64_t turned_term_bytes(const cam_op *op) {
    return whole_lines((uint64_t)op->views[SHRINK_X].cols * PANEL_ROWS * sizeof(float));
}
static uint64_t scratch_shrink(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return turned_term_bytes(op) * n_threads;
}

static void shrink_rows(const cam_op *op, cam_range rows, uint32_t first, const float *turned) {
    const cam_view *u = &op->views[SHRINK_U], *x = &op->views[SHRINK_X];
    const uint32_t n = rows.end - rows.start;
    for (uint32_t i = 0; i < n_tiles(n); i++) {
        const cam_range tile = tile_of(n, i);
        const uint32_t top = rows.start + tile.start;
        cam_sums16 sums = {{{{0}}}};
        add_rows(tile.end - tile.start, (cam_rows){row_of(x, top), x->stride}, (cam_rows){turned, PANEL_ROWS},
                 x->cols, &sums);
        for (uint32_t t = 0; t < tile.end - tile.start; t++) {
            const vf factor = vf_set(factor_of(op, SHRINK_ACTS, top + t));
            for (int s = 0; s < SLICES; s++) sums.at[t][s] *= factor;
            put_sums(row_of(u, top + t) + first, width_of(u->cols, first), sums.at[t]);
        }
    }
}

static void op_shrink(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *u = &op->views[SHRINK_U], *x = &op->views[SHRINK_X];
    float *turned = AT(float, run->program->scratch + turned_term_bytes(op) * thread);
    const float *m = term_of(op, TENSOR_VALUE);
    for (uint32_t first = 0; first < u->cols; first += PANEL_ROWS) {
        const uint32_t n = width_of(u->cols, first);
        for (uint32_t i = 0; i < x->cols; i++)
            for (uint32_t r = 0; r < PANEL_ROWS; r++)
                turned[PANEL_ROWS * i + r] = r < n ? m[(uint64_t)x->cols * (first + r) + i] : 0.0f;
        shrink_rows(op, share(n_rows(run, x), run, thread), first, turned);
    }
}

/* ---- expand: a is u with its factors, b is M */

static void expand_tile(const cam_op *op, uint32_t top, uint32_t n, const float *factored) {
    const cam_view *y = &op->views[EXPAND_Y];
    const uint32_t rank = op->views[EXPAND_U].cols;
    const int adds = op->attrs[TERM_ADDS] != 0;
    for (uint32_t first = 0; first < y->cols; first += PANEL_ROWS) {
        const uint32_t width = width_of(y->cols, first);
        float copy[MOST_TERM_RANK * PANEL_ROWS];
        const cam_rows m = columns_of((cam_rows){term_of(op, TENSOR_VALUE), y->cols}, y->cols, first, rank, copy);
        cam_sums16 sums = {{{{0}}}};
        for (uint32_t t = 0; adds && t < n; t++) get_sums(sums.at[t], row_of(y, top + t) + first, width);
        add_rows(n, (cam_rows){factored, MOST_TERM_RANK}, m, rank, &sums);
        for (uint32_t t = 0; t < n; t++) put_sums(row_of(y, top + t) + first, width, sums.at[t]);
    }
}

static void op_expand(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *u = &op->views[EXPAND_U];
    const cam_range rows = share(n_rows(run, u), run, thread);
    const uint32_t n = rows.end - rows.start;
    for (uint32_t i = 0; i < n_tiles(n); i++) {
        const cam_range tile = tile_of(n, i);
        float factored[HEIGHT * MOST_TERM_RANK];
        for (uint32_t t = tile.start; t < tile.end; t++)
            for (uint32_t r = 0; r < u->cols; r++)
                factored[MOST_TERM_RANK * (t - tile.start) + r] =
                    factor_of(op, EXPAND_ACTS, rows.start + t) * row_of(u, rows.start + t)[r];
        expand_tile(op, rows.start + tile.start, tile.end - tile.start, factored);
    }
}

/* ---- outer: a is u with its factors, transposed; b is z */

static uint32_t outer_rows(const cam_op *op, const cam_program *program) {
    return op->views[OUTER_Z].rows == ROWS_O ? program->capacity_outputs : program->capacity_rows;
}
static uint64_t turned_u_bytes(const cam_op *op, const cam_program *program) {
    return whole_lines((uint64_t)outer_rows(op, program) * op->views[OUTER_U].cols * sizeof(float));
}
static uint64_t copied_z_bytes(const cam_op *op, const cam_program *program) {
    return whole_lines((uint64_t)outer_rows(op, program) * PANEL_ROWS * sizeof(float));
}
static uint64_t scratch_outer(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    return turned_u_bytes(op, program) + copied_z_bytes(op, program) * n_threads;
}

static void outer_columns(const cam_op *op, uint32_t first, uint32_t rows, const float *turned, float *copy) {
    const cam_view *u = &op->views[OUTER_U], *z = &op->views[OUTER_Z];
    const uint32_t width = width_of(z->cols, first);
    const cam_rows columns = columns_of((cam_rows){row_of(z, 0), z->stride}, z->cols, first, rows, copy);
    float *gradient = term_of(op, TENSOR_GRADIENT) + first;
    for (uint32_t i = 0; i < n_tiles(u->cols); i++) {
        const cam_range ranks = tile_of(u->cols, i);
        cam_sums16 sums = {{{{0}}}};
        for (uint32_t r = ranks.start; r < ranks.end; r++)
            get_sums(sums.at[r - ranks.start], gradient + (uint64_t)z->cols * r, width);
        add_rows(ranks.end - ranks.start, (cam_rows){turned + (uint64_t)rows * ranks.start, rows}, columns, rows,
                 &sums);
        for (uint32_t r = ranks.start; r < ranks.end; r++)
            put_sums(gradient + (uint64_t)z->cols * r, width, sums.at[r - ranks.start]);
    }
}

static void op_outer(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *u = &op->views[OUTER_U], *z = &op->views[OUTER_Z];
    const uint32_t rows = n_rows(run, z);
    float *turned = AT(float, run->program->scratch);
    const uint64_t copies = run->program->scratch + turned_u_bytes(op, run->program);
    const cam_range own = share(rows, run, thread);
    for (uint32_t t = own.start; t < own.end; t++)
        for (uint32_t r = 0; r < u->cols; r++)
            turned[(uint64_t)rows * r + t] = factor_of(op, OUTER_ACTS, t) * row_of(u, t)[r];
    cam_meet(run, thread);
    const cam_range panels = share(row_panels(z->cols), run, thread);
    for (uint32_t p = panels.start; p < panels.end; p++)
        outer_columns(op, PANEL_ROWS * p, rows, turned, AT(float, copies + copied_z_bytes(op, run->program) * thread));
}

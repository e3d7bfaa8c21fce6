/* linear, linear_glu, linear_heads: products of rows with matrices in panels.
 *
 * First all threads quantize the rows, each thread a range of columns of every row. After a meeting, each
 * thread multiplies a range of panels with all rows. */
#include "vmath.h"

#include "quantize.c"
#include "repack_types.c"
#include "repack.c"
#include "matrix_tile.c"

/* A vector to multiply: part `part` (x_cols columns) of row `row` of x. The result is the same part of y. */
typedef struct { uint32_t row, part; } cam_place;
typedef struct {
    const cam_view *x, *y;
    uint32_t rows, x_cols, y_cols;
    const cam_place *order;   /* NULL: place p is part p / rows of row p % rows */
} cam_places;

INLINE cam_place place_at(const cam_places *places, uint32_t p) {
    if (places->order) return places->order[p];
    return p < places->rows ? (cam_place){p, 0} : (cam_place){p % places->rows, p / places->rows};
}
INLINE const float *place_x(const cam_places *places, uint32_t p) {
    cam_place place = place_at(places, p);
    return row_of(places->x, place.row) + (uint64_t)places->x_cols * place.part;
}
INLINE float *place_y(const cam_places *places, uint32_t p) {
    cam_place place = place_at(places, p);
    return row_of(places->y, place.row) + (uint64_t)places->y_cols * place.part;
}

/* One matrix of a weight, with its bias and its gate. */
typedef struct {
    uint32_t type;
    cam_layout layout;
    cam_product *product;
    const uint8_t *panels;
    uint32_t cols, n_out;
    const float *bias;        /* NULL: none */
    uint32_t is_gated, act;   /* FORM_GATED: y = act(gate) * up, act a WORD_ */
    uint32_t alternates;      /* FORM_GATED: y = gate, then up */
} cam_matrix;

static cam_matrix matrix_of(const cam_weight *weight, const cam_weight *bias) {
    return (cam_matrix){.type = weight->type, .layout = layouts[weight->type],
                        .product = products[weight->type],
                        .panels = AT(const uint8_t, weight->at), .cols = weight->cols, .n_out = weight->rows,
                        .bias = bias ? AT(const float, bias->at) : NULL};
}
/* Matrix i of a stack; the bias has a row per matrix. */
static cam_matrix matrix_at(const cam_weight *weight, const cam_weight *bias, uint32_t i) {
    cam_matrix matrix = matrix_of(weight, bias);
    matrix.panels += weight->stack_bytes * i;
    if (matrix.bias) matrix.bias += (uint64_t)weight->rows * i;
    return matrix;
}

/* A thread's part of a row: a range of blocks, or of columns in pairs. */
static cam_range share_row(const cam_matrix *matrix, const cam_run *run, uint32_t thread) {
    if (matrix->layout.span) return share(matrix->cols / BLOCK, run, thread);
    const cam_range pairs = share((matrix->cols + 1) / 2, run, thread);
    return (cam_range){2 * pairs.start, 2 * pairs.end < matrix->cols ? 2 * pairs.end : matrix->cols};
}

/* Quantizes this thread's part of each row in a range of places. */
static void quantize(const cam_places *places, cam_range range, const cam_matrix *matrix, uint8_t *acts,
                     const cam_run *run, uint32_t thread) {
    const uint64_t row_bytes = act_bytes(matrix->layout, matrix->cols);
    const cam_range mine = share_row(matrix, run, thread);
    for (uint32_t p = range.start, n; p < range.end; p += n) {
        n = tile_rows(matrix->layout, range.end - p);
        for (uint32_t i = 0; i < n; i++)
            place_row(matrix->type, place_x(places, p + i), mine, n, i, acts + p * row_bytes);
    }
}

/* Outputs of a tile and a panel, [n, 16]. */
typedef struct { float at[TILE > FLOAT_TILE ? TILE : FLOAT_TILE][PANEL_ROWS]; } cam_outputs;

INLINE void multiply_panel(const cam_matrix *matrix, uint32_t panel, const uint8_t *acts, uint32_t n,
                           cam_outputs *out) {
    const uint8_t *at = matrix->panels + panel * panel_bytes(matrix->layout, matrix->cols);
    matrix->product(&matrix->layout, at, acts, matrix->cols, n, out->at[0]);
}

static void multiply_gated(const cam_matrix *matrix, uint32_t panel, const uint8_t *acts, uint32_t n,
                           cam_outputs *out) {
    cam_outputs up;
    multiply_panel(matrix, 2 * panel, acts, n, out);
    multiply_panel(matrix, 2 * panel + 1, acts, n, &up);
    for (float *gate = out->at[0], *other = up.at[0]; gate < out->at[n]; gate += LANES, other += LANES)
        vf_store(gate, vf_gate(matrix->act, vf_load(gate), vf_load(other)));
}

INLINE void store_whole(float *y, const float *out, const float *bias) {
    for (int i = 0; i < PANEL_ROWS; i += LANES) {
        vf sums = vf_load(out + i);
        vf_store(y + i, bias ? sums + vf_load(bias + i) : sums);
    }
}

/* Stores the 16 outputs of a panel for n places, with bias. */
static void store_outputs(const cam_matrix *matrix, const cam_places *places, uint32_t p, uint32_t n,
                          uint32_t panel, const cam_outputs *out) {
    const uint32_t first = PANEL_ROWS * panel, left = matrix->n_out - first;
    const float *bias = matrix->bias ? matrix->bias + first : NULL;
    for (uint32_t t = 0; t < n; t++) {
        float *y = place_y(places, p + t) + first;
        if (left >= PANEL_ROWS) store_whole(y, out->at[t], bias);
        for (uint32_t i = 0; left < PANEL_ROWS && i < left; i++)
            y[i] = bias ? out->at[t][i] + bias[i] : out->at[t][i];
    }
}

/* Place in y of a panel: those of a gate and of its up alternate in memory, and follow each other in y. */
INLINE uint32_t output_panel(const cam_matrix *matrix, uint32_t panel) {
    if (!matrix->alternates) return panel;
    return panel / 2 + (panel & 1) * (matrix->n_out / PANEL_ROWS / 2);
}

/* Panels of this size are processed together: they stay in the L2 cache while all rows are multiplied. */
enum { CACHED_BYTES = 256 << 10 };

/* Panel bytes per 16 outputs: one panel, or two of a gated matrix. */
static uint64_t output_bytes(const cam_matrix *matrix) {
    return panel_bytes(matrix->layout, matrix->cols) << matrix->is_gated;
}
static uint32_t panels_together(const cam_matrix *matrix) {
    uint64_t n = CACHED_BYTES / (output_bytes(matrix) + 1);
    return n ? (uint32_t)n : 1;
}

/* Multiplies a range of panels with a range of places, whose activations are in `acts`. */
static void multiply(const cam_matrix *matrix, const cam_places *places, cam_range range, const uint8_t *acts,
                     cam_range panels) {
    const uint64_t row_bytes = act_bytes(matrix->layout, matrix->cols);
    cam_outputs out;
    for (uint32_t first = panels.start, end; first < panels.end; first = end) {
        end = first + panels_together(matrix) < panels.end ? first + panels_together(matrix) : panels.end;
        for (uint32_t p = range.start, n; p < range.end; p += n) {
            n = tile_rows(matrix->layout, range.end - p);
            for (uint32_t panel = first; panel < end; panel++) {
                if (matrix->is_gated) multiply_gated(matrix, panel, acts + p * row_bytes, n, &out);
                else multiply_panel(matrix, panel, acts + p * row_bytes, n, &out);
                store_outputs(matrix, places, p, n, output_panel(matrix, panel), &out);
            }
        }
    }
}

/* A thread's share of the panels. */
static cam_range share_panels(const cam_matrix *matrix, const cam_run *run, uint32_t thread) {
    return share(n_panels(matrix->n_out), run, thread);
}

/* Size of a thread's unit of work: a smaller unit is read faster than it is claimed. With MANY_ROWS rows a
 * unit is the panels that fit in the cache, as all rows are multiplied with each unit. */
enum { BYTES_AT_ONCE = 16 << 10, MANY_ROWS = 32, LEAST_PARTS = 4 };

static uint32_t panels_at_once(const cam_matrix *matrix, uint32_t n_rows) {
    const uint64_t bytes = output_bytes(matrix);
    if (n_rows >= MANY_ROWS) return panels_together(matrix);
    return bytes < BYTES_AT_ONCE ? (uint32_t)(BYTES_AT_ONCE / bytes) : 1;
}

/* Multiplies all panels of a matrix; a free thread claims the next unit. With fewer than LEAST_PARTS units
 * per thread, each thread keeps a fixed share: an odd unit at the end costs more than a delayed thread. */
static void multiply_all(const cam_matrix *matrix, const cam_places *places, cam_range range,
                         const uint8_t *acts, const cam_run *run, uint32_t thread) {
    const uint32_t n = n_panels(matrix->n_out);
    const uint32_t at_once = panels_at_once(matrix, range.end - range.start);
    if (run->n_threads == 1 || n < LEAST_PARTS * run->n_threads * at_once) {
        multiply(matrix, places, range, acts, share_panels(matrix, run, thread));
        return;
    }
    for (cam_range mine; mine = cam_take(run, n, at_once, thread), mine.start < mine.end;)
        multiply(matrix, places, range, acts, mine);
}

/* ---- The ops */

enum { LINEAR_Y, LINEAR_X };
enum { LINEAR_WEIGHT, LINEAR_BIAS };
enum { GLU_ACT };

static uint8_t *scratch_of(const cam_run *run) { return AT(uint8_t, run->program->scratch); }

/* Maximum number of rows of a view. */
static uint32_t most_rows(const cam_view *view, const cam_program *program) {
    return view->rows == ROWS_O ? program->capacity_outputs : program->capacity_rows;
}
static uint64_t scratch_linear(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)n_threads;
    const cam_weight *weight = &op->weights[LINEAR_WEIGHT];
    uint64_t rows = (uint64_t)most_rows(&op->views[LINEAR_X], program) * weight->stack;
    return whole_lines(rows * act_bytes(layouts[weight->type], weight->cols));
}

static int acts_of(const cam_op *op) { return acts_for(op->weights[LINEAR_WEIGHT].type); }
/* True if scratch holds this op's quantized x from the op before, so the op is never a plan's first. */
static int has_rows(const cam_op *op) {
    return op->flags & FLAG_SAME_X && acts_of(op) == acts_of(op - 1);
}

static void multiply_rows(const cam_op *op, const cam_matrix *matrix, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[LINEAR_X], *y = &op->views[LINEAR_Y];
    const cam_places places = {.x = x, .y = y, .rows = n_rows(run, x)};
    const cam_range all = {0, places.rows};
    if (!has_rows(op)) {
        quantize(&places, all, matrix, scratch_of(run), run, thread);
        cam_meet(run, thread);
    }
    multiply_all(matrix, &places, all, scratch_of(run), run, thread);
}

static void op_linear(const cam_op *op, const cam_run *run, uint32_t thread) {
    cam_matrix matrix = matrix_of(&op->weights[LINEAR_WEIGHT], &op->weights[LINEAR_BIAS]);
    matrix.alternates = op->weights[LINEAR_WEIGHT].form == FORM_GATED;
    multiply_rows(op, &matrix, run, thread);
}

static void op_linear_glu(const cam_op *op, const cam_run *run, uint32_t thread) {
    cam_matrix matrix = matrix_of(&op->weights[LINEAR_WEIGHT], NULL);
    matrix.n_out /= 2;
    matrix.is_gated = 1, matrix.act = (uint32_t)op->attrs[GLU_ACT];
    multiply_rows(op, &matrix, run, thread);
}

/* Copies the columns of each head of x beyond the matrix's columns unchanged. */
static void pass_on(const cam_places *places, cam_range range, const cam_matrix *matrix) {
    const uint32_t beyond = places->x_cols - matrix->cols;
    for (uint32_t p = range.start; p < range.end; p++)
        memcpy(place_y(places, p) + matrix->n_out, place_x(places, p) + matrix->cols, 4 * (uint64_t)beyond);
}

static void op_linear_heads(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[LINEAR_X], *y = &op->views[LINEAR_Y];
    const cam_weight *weight = &op->weights[LINEAR_WEIGHT];
    const uint32_t rows = n_rows(run, x), heads = weight->stack;
    const cam_places places = {x, y, rows, x->cols / heads, y->cols / heads, NULL};
    cam_matrix matrix = matrix_of(weight, NULL);
    for (uint32_t h = 0; h < heads; h++)
        quantize(&places, (cam_range){h * rows, (h + 1) * rows}, &matrix, scratch_of(run), run, thread);
    pass_on(&places, share(heads * rows, run, thread), &matrix);
    cam_meet(run, thread);
    for (uint32_t h = 0; h < heads; h++) {
        matrix = matrix_at(weight, NULL, h);
        multiply(&matrix, &places, (cam_range){h * rows, (h + 1) * rows}, scratch_of(run),
                 share_panels(&matrix, run, thread));
    }
}

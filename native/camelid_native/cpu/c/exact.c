/* linear_exact and linear_back: products with matrices in panels whose other factor is not rounded.
 *
 * A thread decodes a part of the matrix to float32 and multiplies it with all rows. An output is one sum over
 * the matrix's columns (linear_exact) or rows (linear_back) in their order, whatever thread computes it. */
#include "lanes.h"
#include "panels.h"
#include "run.h"

/* ---- Decoding: LANES rows of each column of a panel */

typedef void cam_values(const cam_layout *type, const uint8_t *panel, cam_range cols, float *to,
                        uint64_t stride);

/* Columns 4 * g to 4 * g + 3 of LANES rows; code j of a lane is in its byte j. */
INLINE void put_group(const cam_layout layout, vb codes, cam_terms terms, float *to, uint64_t stride) {
    UNROLL for (int j = 0; j < 4; j++) {
        vi code = is_signed(layout) ? (vi)((vu)codes << (24 - 8 * j)) >> 24 : (vi)((vu)codes >> 8 * j & 255);
        vf value = vi_float(layout.zero ? code - layout.zero : code) * terms.scale;
        vf_store(to + stride * (uint32_t)j, has_shift(layout) ? value + terms.shift : value);
    }
}

INLINE void values_of_codes(const cam_layout layout, const cam_layout *type, const uint8_t *panel,
                            cam_range cols, float *to, uint64_t stride) {
    const vb table = layout.table ? vb_set16(tables[type->table]) + (uint8_t)layout.zero : (vb){0};
    for (uint32_t b = cols.start / BLOCK; b < cols.end / BLOCK; b++, to += BLOCK * stride) {
        const uint8_t *span = panel + (uint64_t)(b / type->span) * (head_bytes(layout) +
                                      type->span * block_bytes(layout));
        const uint8_t *block = span + head_bytes(layout) + b % type->span * block_bytes(layout);
        for (int s = 0; s < SLICES; s++) {
            const cam_head head = take_head(layout, type, span, s);
            const cam_part part = take_part(layout, table, block, s, head);
            UNROLL for (int g = 0; g < GROUPS; g++)
                put_group(layout, part.codes[g], part.terms[is_halved(layout) ? g / 4 : 0],
                          to + 4 * (uint32_t)g * stride + LANES * s, stride);
        }
    }
}

INLINE void values_of_floats(const uint32_t type, const uint8_t *panel, cam_range cols, float *to,
                             uint64_t stride) {
    const uint32_t bytes = PANEL_ROWS * layouts[type].stored;
    for (uint32_t c = cols.start; c < cols.end; c++, to += stride)
        for (int s = 0; s < SLICES; s++) {
            const uint16_t *halves = (const uint16_t *)(const void *)(panel + (uint64_t)bytes * c) + LANES * s;
            vf v = type == TYPE_f32 ? vf_load((const float *)(const void *)(panel + (uint64_t)bytes * c) + LANES * s)
                 : type == TYPE_f16 ? vf_half(halves) : vf_bfloat(halves);
            vf_store(to + LANES * s, v);
        }
}

#define CAM_VALUES(name, number, body)                                                     \
    static void exact_##name(const cam_layout *type, const uint8_t *panel, cam_range cols, float *to, \
                              uint64_t stride) {                                           \
        enum { id = number };                                                              \
        (void)type;                                                                        \
        body;                                                                              \
    }
#define CAM_CODES_OF(name, id, ...) \
    CAM_VALUES(name, id, values_of_codes(layouts[id], type, panel, cols, to, stride))
#define CAM_FLOATS_OF(name, id, ...) CAM_VALUES(name, id, values_of_floats(id, panel, cols, to, stride))
CAM_OWN_PANELS(CAM_CODES_OF)
CAM_FLOAT_PANELS(CAM_FLOATS_OF)
CAM_VALUES(table, TYPE_iq2_xxs, values_of_codes(layouts[id], type, panel, cols, to, stride))
CAM_VALUES(tiny, TYPE_tq2_0, values_of_codes(layouts[id], type, panel, cols, to, stride))

static cam_values *const values_of[N_TYPES] = {
#define CAM_OWN(name, id, ...) [id] = exact_##name,
#define CAM_TABLE(name, id, ...) [id] = exact_table,
#define CAM_TINY(name, id, ...) [id] = exact_tiny,
    CAM_OWN_PANELS(CAM_OWN) CAM_FLOAT_PANELS(CAM_OWN) CAM_TABLE_PANELS(CAM_TABLE) CAM_TINY_PANELS(CAM_TINY)
#undef CAM_OWN
#undef CAM_TABLE
#undef CAM_TINY
};

/* Rows of a panel. */
INLINE const uint8_t *panel_at(const cam_weight *weight, uint32_t panel) {
    return AT(const uint8_t, weight->at) + panel * panel_bytes(layouts[weight->type], weight->cols);
}
INLINE void decode_panel(const cam_weight *weight, uint32_t panel, cam_range cols, float *to, uint64_t stride) {
    values_of[weight->type](&layouts[weight->type], panel_at(weight, panel), cols, to, stride);
}

/* ---- Products of float32 */

#if LANES == 16
enum { HEIGHT = 12 };
#elif LANES == 8
enum { HEIGHT = 6 };   /* 12 sums, 2 columns' vectors and a factor fill the registers of AVX2 */
#else
enum { HEIGHT = 4 };
#endif
/* Sums of a tile: n rows of a times 16 columns of b, [n, 16]. */
typedef struct { vf at[HEIGHT][SLICES]; } cam_sums16;

/* Rows `stride` floats apart. */
typedef struct { const float *at; uint64_t stride; } cam_rows;

/* sums += a [n, k] times b [k, 16]. */
INLINE void add_tile(const int n, cam_rows a, cam_rows b, uint32_t k, cam_sums16 *sums) {
    vf sum[HEIGHT][SLICES];
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int s = 0; s < SLICES; s++) sum[t][s] = sums->at[t][s];
    for (uint32_t i = 0; i < k; i++, b.at += b.stride) {
        vf column[SLICES];
        UNROLL for (int s = 0; s < SLICES; s++) column[s] = vf_load(b.at + LANES * s);
        UNROLL for (int t = 0; t < n; t++) {
            const vf factor = vf_set(a.at[(uint32_t)t * a.stride + i]);
            UNROLL for (int s = 0; s < SLICES; s++) sum[t][s] = vf_fma(factor, column[s], sum[t][s]);
        }
    }
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int s = 0; s < SLICES; s++) sums->at[t][s] = sum[t][s];
}

static void add_rows(uint32_t n, cam_rows a, cam_rows b, uint32_t k, cam_sums16 *sums) {
#define CAM_HEIGHT(h) case h: if (h <= HEIGHT) add_tile(h <= HEIGHT ? h : 1, a, b, k, sums); break;
    switch (n) {
        CAM_HEIGHT(1) CAM_HEIGHT(2) CAM_HEIGHT(3) CAM_HEIGHT(4) CAM_HEIGHT(5) CAM_HEIGHT(6)
        CAM_HEIGHT(7) CAM_HEIGHT(8) CAM_HEIGHT(9) CAM_HEIGHT(10) CAM_HEIGHT(11) CAM_HEIGHT(12)
    }
#undef CAM_HEIGHT
}

/* Tiles of n rows, of nearly equal heights. */
INLINE uint32_t n_tiles(uint32_t n) { return (n + HEIGHT - 1) / HEIGHT; }
INLINE cam_range tile_of(uint32_t n, uint32_t i) { return cut_range((cam_range){0, n}, i, n_tiles(n)); }

enum { EXACT_Y, EXACT_X };                /* views of linear_exact */
enum { BACK_DX, BACK_DY };                /* views of linear_back */
enum { EXACT_WEIGHT, EXACT_BIAS };
enum { BACK_ADDS };
enum { TOGETHER_BYTES = 192 << 10 };      /* decoded values that stay in the L2 cache */
enum { BACK_ROWS = 768, BACK_COLS = 32 }; /* of a part of the matrix in linear_back: whole panels and blocks */

/* The next units of a thread after `last`, which is empty at first. Meetings of one thread reset no claims, so
 * it takes all units in order. */
INLINE cam_range next_units(const cam_run *run, uint32_t n, uint32_t most, uint32_t thread, cam_range last) {
    if (run->n_threads > 1) return cam_take(run, n, most, thread);
    return (cam_range){last.end, n - last.end < most ? n : last.end + most};
}

/* ---- linear_exact: a is x, b a decoded panel */

/* Panels that a thread decodes at once. */
static uint32_t decoded_together(uint32_t cols) {
    const uint64_t n = TOGETHER_BYTES / ((uint64_t)cols * PANEL_ROWS * sizeof(float) + 1);
    return n < 1 ? 1 : n > 4 ? 4 : (uint32_t)n;
}
static uint64_t decoded_bytes(uint32_t cols) {
    return whole_lines((uint64_t)decoded_together(cols) * cols * PANEL_ROWS * sizeof(float));
}

static void put_exact(const cam_view *y, uint32_t row, uint32_t first, const float *bias, const vf *sums) {
    const uint32_t left = y->cols - first;
    float *to = row_of(y, row) + first;
    for (uint32_t i = 0; i < PANEL_ROWS && i < left; i += LANES) {
        vf v = sums[i / LANES];
        vf_put(to + i, left - i, bias ? v + vf_get(bias + first + i, left - i) : v);
    }
}

static void multiply_exact(const cam_op *op, cam_range panels, uint32_t rows, float *decoded) {
    const cam_weight *weight = &op->weights[EXACT_WEIGHT];
    const cam_view *x = &op->views[EXACT_X], *y = &op->views[EXACT_Y];
    const uint32_t cols = weight->cols;
    for (uint32_t p = panels.start; p < panels.end; p++)
        decode_panel(weight, p, (cam_range){0, cols}, decoded + (uint64_t)(p - panels.start) * cols * PANEL_ROWS,
                     PANEL_ROWS);
    for (uint32_t i = 0; i < n_tiles(rows); i++) {
        const cam_range tile = tile_of(rows, i);
        for (uint32_t p = panels.start; p < panels.end; p++) {
            cam_sums16 sums = {{{{0}}}};
            const float *panel = decoded + (uint64_t)(p - panels.start) * cols * PANEL_ROWS;
            add_rows(tile.end - tile.start, (cam_rows){row_of(x, tile.start), x->stride},
                     (cam_rows){panel, PANEL_ROWS}, cols, &sums);
            for (uint32_t t = tile.start; t < tile.end; t++)
                put_exact(y, t, PANEL_ROWS * p, AT(float, op->weights[EXACT_BIAS].at), sums.at[t - tile.start]);
        }
    }
}

static void op_linear_exact(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_weight *weight = &op->weights[EXACT_WEIGHT];
    const uint32_t rows = n_rows(run, &op->views[EXACT_X]), together = decoded_together(weight->cols);
    float *decoded = AT(float, run->program->scratch + decoded_bytes(weight->cols) * thread);
    const uint32_t n = n_panels(weight->rows), units = (n + together - 1) / together;
    for (cam_range mine = {0, 0}; mine = next_units(run, units, 1, thread, mine), mine.start < mine.end;) {
        const uint32_t first = mine.start * together, end = first + together < n ? first + together : n;
        multiply_exact(op, (cam_range){first, end}, rows, decoded);
    }
}
static uint64_t scratch_linear_exact(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return decoded_bytes(op->weights[EXACT_WEIGHT].cols) * n_threads;
}

/* ---- linear_back: a is a decoded part of the transposed matrix, b is dy transposed */

static uint32_t row_panels(uint32_t rows) { return (rows + PANEL_ROWS - 1) / PANEL_ROWS; }

/* Columns [first, first + k) of dy, as panels [k, 16] of 16 rows; missing rows are 0. */
static void transpose_rows(const cam_view *dy, uint32_t rows, cam_range panels, uint32_t first, uint32_t k,
                           float *to) {
    for (uint32_t p = panels.start; p < panels.end; p++) {
        const uint32_t top = PANEL_ROWS * p, n = rows - top < PANEL_ROWS ? rows - top : PANEL_ROWS;
        const float *from = row_of(dy, top) + first;
        float *panel = to + (uint64_t)p * BACK_ROWS * PANEL_ROWS;
        for (uint32_t i = 0; i < k; i++, panel += PANEL_ROWS) {
            for (uint32_t r = 0; r < n; r++) panel[r] = from[dy->stride * r + i];
            for (uint32_t r = n; r < PANEL_ROWS; r++) panel[r] = 0.0f;
        }
    }
}

/* dx [16 rows, columns of a tile] = or += the sums [columns, 16]. */
static void put_back(const cam_view *dx, uint32_t rows, uint32_t panel, cam_range cols, const cam_sums16 *sums,
                     int adds) {
    for (uint32_t r = 0, t = PANEL_ROWS * panel; r < PANEL_ROWS && t < rows; r++, t++) {
        float *to = row_of(dx, t) + cols.start;
        for (uint32_t c = 0; c < cols.end - cols.start; c++) {
            const float value = ((const float *)sums->at[c])[r];
            to[c] = adds ? to[c] + value : value;
        }
    }
}

/* A block of columns of dx, from rows [first, first + k) of the matrix. */
static void multiply_back(const cam_op *op, uint32_t block, uint32_t first, uint32_t k, const float *turned,
                          uint32_t rows, float *decoded) {
    const cam_weight *weight = &op->weights[EXACT_WEIGHT];
    const uint32_t end = BACK_COLS * (block + 1);
    const cam_range cols = {BACK_COLS * block, end < weight->cols ? end : weight->cols};
    const uint32_t n = cols.end - cols.start;
    const int adds = first > 0 || op->attrs[BACK_ADDS] != 0;
    for (uint32_t p = 0; p < row_panels(k); p++)
        decode_panel(weight, first / PANEL_ROWS + p, cols, decoded + PANEL_ROWS * p, BACK_ROWS);
    for (uint32_t p = 0; p < row_panels(rows); p++)
        for (uint32_t i = 0; i < n_tiles(n); i++) {
            const cam_range tile = tile_of(n, i);
            cam_sums16 sums = {{{{0}}}};
            const float *own = decoded + (uint64_t)BACK_ROWS * tile.start;
            add_rows(tile.end - tile.start, (cam_rows){own, BACK_ROWS},
                     (cam_rows){turned + (uint64_t)p * BACK_ROWS * PANEL_ROWS, PANEL_ROWS}, k, &sums);
            put_back(&op->views[BACK_DX], rows, p, (cam_range){cols.start + tile.start, cols.start + tile.end},
                     &sums, adds);
        }
}

static uint64_t back_bytes(void) { return (uint64_t)BACK_ROWS * BACK_COLS * sizeof(float); }
static uint64_t turned_bytes(uint32_t rows) {
    return (uint64_t)row_panels(rows) * BACK_ROWS * PANEL_ROWS * sizeof(float);
}

static void op_linear_back(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_weight *weight = &op->weights[EXACT_WEIGHT];
    const cam_view *dy = &op->views[BACK_DY];
    const uint32_t rows = n_rows(run, dy), blocks = (weight->cols + BACK_COLS - 1) / BACK_COLS;
    float *turned = AT(float, run->program->scratch);
    float *decoded = AT(float, run->program->scratch + turned_bytes(rows) + back_bytes() * thread);
    for (uint32_t first = 0; first < weight->rows; first += BACK_ROWS) {
        const uint32_t left = weight->rows - first, k = left < BACK_ROWS ? left : BACK_ROWS;
        if (first) cam_meet(run, thread);
        transpose_rows(dy, rows, share(row_panels(rows), run, thread), first, k, turned);
        cam_meet(run, thread);
        for (cam_range mine = {0, 0}; mine = next_units(run, blocks, 1, thread, mine), mine.start < mine.end;)
            multiply_back(op, mine.start, first, k, turned, rows, decoded);
    }
}
static uint64_t scratch_linear_back(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    const uint32_t rows = op->views[BACK_DY].rows == ROWS_O ? program->capacity_outputs : program->capacity_rows;
    return turned_bytes(rows) + back_bytes() * n_threads;
}

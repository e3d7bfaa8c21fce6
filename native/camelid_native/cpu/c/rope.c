/* rope: rotates pairs of floats by position times frequency. */
#include "lanes.h"
#include "parts.h"
#include "run.h"
#include "words.h"

enum { ROPE_FINE, ROPE_COARSE };
enum { ROPE_HEAD_DIM, ROPE_DIM, ROPE_STYLE, ROPE_OFFSET, ROPE_CHANNEL };

/* Cosines and sines of a row, in scratch; for style norm each is stored twice, the first sine negated. */
typedef struct { float *cos, *sin; } turn;

/* Cosines and sines of a position. The fine and the coarse table hold exp(i * angle) as (cos, sin) pairs; the
 * complex product of two entries is exp(i * (sum of the angles)). */
static void find_turn(const cam_op *op, uint32_t position, turn to, int twice) {
    const cam_weight *fine = &op->weights[ROPE_FINE], *coarse = &op->weights[ROPE_COARSE];
    uint32_t far_row = position / fine->rows, last = coarse->rows - 1;
    const float *near = AT(float, fine->at) + (uint64_t)(position % fine->rows) * fine->cols;
    const float *far = AT(float, coarse->at) + (uint64_t)(far_row < last ? far_row : last) * coarse->cols;
    for (uint32_t i = 0; i < fine->cols; i += 2) {
        float cos = near[i] * far[i] - near[i + 1] * far[i + 1];
        float sin = near[i] * far[i + 1] + near[i + 1] * far[i];
        uint32_t at = twice ? i : i / 2;
        to.cos[at] = cos, to.sin[at] = twice ? -sin : sin;
        if (twice) to.cos[at + 1] = cos, to.sin[at + 1] = sin;
    }
}

/* Rotates pairs of neighbours: x = x * cos + neighbour * sin. */
static void turn_neighbours(float *x, uint32_t dim, turn by) {
    for (uint32_t i = 0; i < dim; i += LANES) {
        vf v = vf_get(x + i, dim - i), other = SHUFFLE(v, v, SWAP_1);
        vf_put(x + i, dim - i, vf_fma(v, vf_get(by.cos + i, dim - i), other * vf_get(by.sin + i, dim - i)));
    }
}

/* Rotates pairs that are dim / 2 apart. */
static void turn_halves(float *x, uint32_t dim, turn by) {
    uint32_t half = dim / 2;
    for (uint32_t i = 0; i < half; i += LANES) {
        uint32_t left = half - i;
        vf a = vf_get(x + i, left), b = vf_get(x + half + i, left);
        vf cos = vf_get(by.cos + i, left), sin = vf_get(by.sin + i, left);
        vf_put(x + i, left, vf_fma(a, cos, -(b * sin)));
        vf_put(x + half + i, left, vf_fma(b, cos, a * sin));
    }
}

INLINE uint64_t turn_bytes(const cam_op *op) {
    return whole_lines((uint64_t)op->attrs[ROPE_DIM] * sizeof(float));
}
static uint64_t scratch_rope(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return 2 * turn_bytes(op) * n_threads;
}

/* Rotates the heads of view 0 by their rows' angles times `sense`, 1 or -1. */
static void turn_rows(const cam_op *op, const cam_run *run, uint32_t thread, float sense) {
    const cam_view *x = &op->views[0];
    uint32_t head_dim = (uint32_t)op->attrs[ROPE_HEAD_DIM], dim = (uint32_t)op->attrs[ROPE_DIM];
    uint64_t scratch = run->program->scratch + 2 * turn_bytes(op) * thread;
    turn by = {AT(float, scratch), AT(float, scratch + turn_bytes(op))};
    int neighbours = (uint32_t)op->attrs[ROPE_STYLE] == WORD_norm;
    cam_range rows = share(n_rows(run, x), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        find_turn(op, row_words(run, t)[ROW_POSITIONS + (uint32_t)op->attrs[ROPE_CHANNEL]], by, neighbours);
        for (uint32_t i = 0; sense < 0 && i < (neighbours ? dim : dim / 2); i++) by.sin[i] = -by.sin[i];
        for (uint32_t at = (uint32_t)op->attrs[ROPE_OFFSET]; at < x->cols; at += head_dim)
            (neighbours ? turn_neighbours : turn_halves)(row_of(x, t) + at, dim, by);
    }
}

static void op_rope(const cam_op *op, const cam_run *run, uint32_t thread) { turn_rows(op, run, thread, 1.0f); }

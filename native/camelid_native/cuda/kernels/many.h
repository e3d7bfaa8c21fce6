/* many: the outputs of a block for MANY rows of x by integer matrix instructions. A turn decodes eight blocks of each
 * row of the matrix, a block a thread; a group of 32 lanes multiplies those of its classes. Sums of a class are added
 * as in codes.h, and classes in order, so that a row has the bits that it has among few. */
#pragma once
#include "codes.h"

#define BLOCK_TOKENS MANY
enum {
    GROUPS = MANY / CLASSES,  /* of rows of x, as wide as a matrix instruction */
    ROW_TILES = BLOCK_ROWS / 16,
    OWN = CLASSES / (THREADS / GROUP_LANES)  /* classes of a group of lanes */
};
struct Turn { u32 words[8 * THREADS]; float scales[2 * THREADS], zeros[2 * THREADS]; };  /* [class, row of the block] */
typedef float Sums[OWN][ROW_TILES][GROUPS][4];  /* a lane's part of 16 rows by 8 rows of x */

DEVICE void stage(Turn &turn, const Codes &w) {
    const int slot = CLASS * BLOCK_ROWS + THREAD / CLASSES;
    for (int i = 0; i < 8; i++) turn.words[8 * slot + i] = w.words[i];
    for (int h = 0; h < SCALES; h++) turn.scales[2 * slot + h] = w.scales[h], turn.zeros[2 * slot + h] = w.zeros[h];
}

/* Adds half h of a block to the lane's sums: products of 16 x 8 codes, or of all 32 columns with one scale. */
DEVICE void add_tile(const Turn &turn, int slot, const u32 *x, const uint4 *factors, int h, float *sums) {
    const u32 *w = turn.words + 8 * slot + LANE % 4;
    int dots[4] = {};
    if (SCALES == 1 || h == 0) mma_16(dots, w[0], w[64], x[0]);
    if (SCALES == 1 || h == 1) mma_16(dots, w[4], w[68], x[1]);
    for (int i = 0; i < 4; i++) {
        const uint4 f = factors[i % 2];
        const int of_x = (int)(SCALES == 1 ? f.w : h ? f.z : f.y), row = 2 * (slot + i / 2 * 8) + h;
        const float scale = as_float(f.x);
        sums[i] = fma_(turn.scales[row] * scale, (float)(dots[i] - OFFSET * of_x), sums[i]);
        if (HAS_ZEROS) sums[i] = fma_(turn.zeros[row] * scale, (float)of_x, sums[i]);
    }
}

/* Adds block b, of class c, to the sums of all rows of x. */
DEVICE void add_class(const Turn &turn, const Input &in, int c, int b, float (&sums)[ROW_TILES][GROUPS][4]) {
    const int last = in.n - 1, n_blocks = in.pitch / BLOCK;
    UNROLL
    for (int g = 0; g < GROUPS; g++) {
        if (CLASSES * g > last) break;
        const int column = CLASSES * g + LANE / 4, own = CLASSES * g + LANE % 4 * 2;
        const long long t = column < last ? column : last;
        const long long low = own < last ? own : last, high = own < last ? own + 1 : last;
        const u32 *codes = (const u32 *)(in.codes + t * in.pitch) + 8 * b + LANE % 4;
        const u32 x[2] = {codes[0], codes[4]};
        const uint4 factors[2] = {in.factors[low * n_blocks + b], in.factors[high * n_blocks + b]};
        for (int tile = 0; tile < ROW_TILES; tile++)
            for (int h = 0; h < SCALES; h++)
                add_tile(turn, c * BLOCK_ROWS + 16 * tile + LANE / 4, x, factors, h, sums[tile][g]);
    }
}

/* Writes the lane's sums of class c to [rows of the block, rows of x]. */
DEVICE void write_class(float *part, const float (&sums)[ROW_TILES][GROUPS][4]) {
    UNROLL
    for (int g = 0; g < GROUPS; g++)
        for (int tile = 0; tile < ROW_TILES; tile++)
            for (int i = 0; i < 4; i++)
                part[(16 * tile + LANE / 4 + i / 2 * 8) * MANY + CLASSES * g + LANE % 4 * 2 + i % 2] = sums[tile][g][i];
}

/* own[g] = the lane's row of the matrix times row CLASSES * g + CLASS of x. */
DEVICE void multiply_many(const Matrix &m, int row, const Input &in, Turn &turn, float *parts, float (&own)[GROUPS]) {
    const int n_blocks = m.cols / BLOCK, first = THREAD / GROUP_LANES * OWN;
    Sums sums = {};
    for (int b = 0; b < n_blocks; b += CLASSES) {
        SYNC();  /* lanes may still read the turn before */
        if (b + CLASS < n_blocks) stage(turn, codes_of(m, load_block(m, (long long)row * n_blocks + b + CLASS), CLASS));
        SYNC();
        UNROLL
        for (int o = 0; o < OWN; o++)
            if (b + first + o < n_blocks) add_class(turn, in, first + o, b + first + o, sums[o]);
    }
    UNROLL
    for (int o = 0; o < OWN; o++) write_class(parts + (first + o) * BLOCK_ROWS * MANY, sums[o]);
    SYNC();
    UNROLL
    for (int g = 0; g < GROUPS; g++) {
        const float *at = parts + THREAD / CLASSES * MANY + CLASSES * g + CLASS;
        own[g] = at[0];
        for (int c = 1; c < CLASSES; c++) own[g] = own[g] + at[c * BLOCK_ROWS * MANY];
    }
}

/* The lane's sums of all rows of x, in the memory of the turns: registers cannot be indexed. */
template <class Task> DEVICE float *all_sums(const Task &task, Turn &turn) {
    SHARED(float, parts, CLASSES * BLOCK_ROWS * MANY);
    int rows[Task::R];
    float own[Task::R][GROUPS], *kept = (float *)turn.words + THREAD;
    task.find_rows(rows);
    UNROLL
    for (int r = 0; r < Task::R; r++) multiply_many(task.weight, rows[r], task.in, turn, parts, own[r]);
    UNROLL
    for (int i = 0; i < Task::R * GROUPS; i++) kept[i * THREADS] = own[i / GROUPS][i % GROUPS];
    return kept;
}

template <class Task> DEVICE void outputs(const Task &task) {
    SHARED(Turn, turn, 1);
    const float *kept = all_sums(task, *turn);
    for (int g = 0; g < GROUPS && CLASSES * g < task.in.n; g++) {
        float own[Task::R], scales[1][CLASSES] = {{1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}}, scale = 1.0f;
        scale_sums<THREADS>(task.norm, CLASSES * g, task.in.n - CLASSES * g, scales);
        UNROLL
        for (int t = 0; task.norm.cols && t < CLASSES; t++) scale = CLASS == t ? scales[0][t] : scale;
        UNROLL
        for (int r = 0; r < Task::R; r++) own[r] = kept[(r * GROUPS + g) * THREADS] * scale;
        task.finish(own, CLASSES * g);
    }
}

/* gemm: the outputs of a block for GEMM rows of x by integer matrix instructions. A turn has eight blocks of 32 columns
 * of BLOCK_ROWS rows of the matrix and of all rows of x in shared memory; two groups of 32 lanes have a class, half of
 * the rows each. A class is summed as in codes.h, and classes in order, so that a row has the bits that it has among
 * few. */
#pragma once
#include "codes.h"
#include "deferred.h"

#define BLOCK_TOKENS GEMM
enum {
    PARTS = GEMM / CLASSES,  /* of the rows of x, as wide as a matrix instruction */
    TABLES = SCALES * (1 + HAS_ZEROS)
};
/* Blocks by class, then by row: codes, scales and zero points of weights; codes, scale and sums of x. */
struct Turn {
    u32 weights[8 * CLASSES * BLOCK_ROWS], x[8 * CLASSES * GEMM];
    float scales[TABLES * CLASSES * BLOCK_ROWS], factors[(1 + HAS_ZEROS * SCALES) * CLASSES * GEMM];
};
typedef float Sums[2][PARTS][4];  /* a lane's part of two times 16 rows by 8 rows of x */

/* Signed codes less their offset, byte by byte. */
DEVICE u32 centred(u32 codes) {
    return OFFSET ? codes + (128 - OFFSET) * 0x01010101u ^ 0x80808080u : codes;
}

/* Word i of a row of the matrix: 16 rows are in the order of the lanes of a matrix instruction, four words a lane. */
DEVICE int word_place(int at, int i) {
    const int row = at % 16;
    return at / 16 * 128 + (row % 8 * 4 + i % 4) * 4 + i / 4 * 2 + row / 8;
}

DEVICE void stage_weights(Turn &turn, const Codes &w) {
    const int at = CLASS * BLOCK_ROWS + THREAD / CLASSES;
    UNROLL
    for (int i = 0; i < 8; i++) turn.weights[word_place(at, i)] = centred(w.words[i]);
    for (int h = 0; h < SCALES; h++) {
        turn.scales[SCALES * at + h] = w.scales[h];
        if (HAS_ZEROS) turn.scales[SCALES * (CLASSES * BLOCK_ROWS + at) + h] = w.zeros[h];
    }
}

/* A block of x: the lane's class of row THREAD / CLASSES. Sums are those of halves, or of all columns. */
struct Loaded { uint4 low, high; float scale, sums[2]; };

DEVICE Loaded load_x(const Input &in, int b) {
    const int row = THREAD / CLASSES < in.n ? THREAD / CLASSES : in.n - 1;
    const uint4 *codes = (const uint4 *)(in.codes + (long long)row * in.pitch) + 2 * b;
    const u32 *factors = (const u32 *)(in.factors + (long long)row * (in.pitch / BLOCK) + b);
    Loaded x = {codes[0], codes[1], as_float(factors[0])};
    for (int h = 0; HAS_ZEROS && h < SCALES; h++) x.sums[h] = (float)(int)factors[SCALES == 1 ? 3 : 1 + h];
    return x;
}

DEVICE void stage_x(Turn &turn, const Loaded &x) {
    if (THREAD / CLASSES >= GEMM) return;
    const int at = CLASS * GEMM + THREAD / CLASSES;
    uint4 *codes = (uint4 *)(turn.x + 8 * at);
    codes[0] = {x.low.x, x.high.x, x.low.y, x.high.y};
    codes[1] = {x.low.z, x.high.z, x.low.w, x.high.w};
    turn.factors[at] = x.scale;
    for (int h = 0; HAS_ZEROS && h < SCALES; h++) turn.factors[(1 + h) * CLASSES * GEMM + at] = x.sums[h];
}

/* Adds half h of a block to the lane's sums of 16 rows, from `row` on, with 8 rows of x, from `token` on. */
DEVICE void add_products(const Turn &turn, int row, int token, int h, float (&sums)[4]) {
    const uint4 w = load16(turn.weights + row / 16 * 128 + 4 * LANE);
    const uint2 x = load8(turn.x + 8 * token + LANE % 4 * 2);
    float dots[4];
    if (SCALES == 1) mma_32_float(dots, w.x, w.y, w.z, w.w, x.x, x.y);
    else if (h == 0) mma_16_float(dots, w.x, w.y, x.x);
    else mma_16_float(dots, w.z, w.w, x.y);
    const int own = token - LANE / 4 + LANE % 4 * 2;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int at = SCALES * (row + i / 2 * 8) + h;
        const float scale = turn.factors[own + i % 2];
        sums[i] = fma_(turn.scales[at] * scale, dots[i], sums[i]);
        if (HAS_ZEROS) {
            const float of_x = turn.factors[(1 + h) * CLASSES * GEMM + own + i % 2];
            sums[i] = fma_(turn.scales[TABLES / 2 * CLASSES * BLOCK_ROWS + at] * scale, of_x, sums[i]);
        }
    }
}

/* Adds the blocks of class c that the turn has. */
DEVICE void add_class(const Turn &turn, int c, int half, int n, Sums &sums) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int row = c * BLOCK_ROWS + 32 * half + 16 * i + LANE / 4;
        UNROLL
        for (int p = 0; p < PARTS; p++) {
            if (CLASSES * p >= n) break;
            for (int h = 0; h < SCALES; h++)
                add_products(turn, row, c * GEMM + CLASSES * p + LANE / 4, h, sums[i][p]);
        }
    }
}

/* own[p] = the sum of the classes, in order, of the lane's row of the matrix with row CLASSES * p + CLASS of x. */
DEVICE void add_classes(float *parts, int c, int half, const Sums &sums, float (&own)[PARTS]) {
    UNROLL
    for (int p = 0; p < PARTS; p++) {
        SYNC();  /* lanes may still read the part before */
        UNROLL
        for (int i = 0; i < 8; i++) {
            const int row = c * BLOCK_ROWS + 32 * half + 16 * (i / 4) + LANE / 4 + i / 2 % 2 * 8;
            parts[CLASSES * row + LANE % 4 * 2 + i % 2] = sums[i / 4][p][i % 4];
        }
        SYNC();
        own[p] = parts[THREAD];
        for (int other = 1; other < CLASSES; other++) own[p] = own[p] + parts[other * THREADS + THREAD];
    }
    SYNC();
}

DEVICE int at_most(int last, int b) { return b < last ? b : last; }

/* own[p] = the lane's row of the matrix times row CLASSES * p + CLASS of x. */
DEVICE void multiply_all(const Matrix &m, int row, const Input &in, Turn &turn, float (&own)[PARTS]) {
    const int n_blocks = m.cols / BLOCK, group = THREAD / GROUP_LANES, c = group / 2, half = group % 2;
    const long long first = (long long)row * n_blocks;
    Sums sums = {};
    Stored w = load_block(m, first + at_most(n_blocks - 1, CLASS));
    Loaded x = load_x(in, at_most(n_blocks - 1, CLASS));
    for (int b = 0; b < n_blocks; b += CLASSES) {
        SYNC();  /* lanes may still read the turn before */
        stage_weights(turn, codes_of(m, w, CLASS));
        stage_x(turn, x);
        SYNC();
        const int next = at_most(n_blocks - 1, b + CLASSES + CLASS);
        w = load_block(m, first + next);
        x = load_x(in, next);
        if (b + c < n_blocks) add_class(turn, c, half, in.n, sums);
    }
    add_classes((float *)turn.weights, c, half, sums, own);
}

/* The lane's sums of all rows of x, in the memory of the turns: registers cannot be indexed. */
template <class Task> DEVICE const float *all_sums(const Task &task, Turn &turn) {
    int rows[Task::R];
    float own[Task::R][PARTS], *kept = (float *)turn.weights + THREAD;
    task.find_rows(rows);
    UNROLL
    for (int r = 0; r < Task::R; r++) multiply_all(task.weight, rows[r], task.in, turn, own[r]);
    UNROLL
    for (int i = 0; i < Task::R * PARTS; i++) kept[i * THREADS] = own[i / PARTS][i % PARTS];
    return kept;
}

template <class Task> DEVICE void outputs(const Task &task) {
    SHARED(Turn, turn, 1);
    SHARED(float, scales, GEMM);
    for (int t = THREAD / GROUP_LANES; t < task.in.n; t += THREADS / GROUP_LANES) {
        const float scale = norm_scale<FEW_THREADS>(task.norm, t);
        if (LANE == 0) scales[t] = scale;
    }
    const float *kept = all_sums(task, *turn);
    for (int p = 0; p < PARTS && CLASSES * p < task.in.n; p++) {
        float own[Task::R];
        const float scale = scales[at_most(task.in.n - 1, CLASSES * p + CLASS)];
        UNROLL
        for (int r = 0; r < Task::R; r++) own[r] = kept[(r * PARTS + p) * THREADS] * scale;
        task.finish(own, CLASSES * p);
    }
}

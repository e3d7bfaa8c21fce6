/* gemm: the outputs of a block for GEMM rows of x by integer matrix instructions. A turn has eight blocks of 32 columns
 * of BLOCK_ROWS rows of the matrix and of all rows of x in shared memory; one or two groups of MMA_LANES lanes have a
 * class, with all or half of the rows. A class is summed as in codes.h, and classes in order, so that a row has the
 * bits that it has among few. */
#pragma once
#include "codes.h"
#include "finish.h"
#include "mma.h"

#define BLOCK_TOKENS GEMM
enum {
    GROUPS = GEMM / CLASSES,  /* of the rows of x, one a lane of a row */
    TILES = GEMM / TILE_COLUMNS,
    SHARES = THREADS / MMA_LANES / CLASSES,  /* groups of lanes of a class */
    ROW_TILES = BLOCK_ROWS / 16 / SHARES  /* of a group of lanes */
};
/* Blocks by class, then by row: codes, scales and zero points of weights; codes and scale of x, and its sums times the
 * scale. Classes are a few words further apart than their size: eight lanes with neighbouring classes write to other
 * banks of the memory. */
enum {
    W_CLASS = BLOCK_WORDS * BLOCK_ROWS + 4, X_CLASS = BLOCK_WORDS * GEMM + 2,
    S_CLASS = SCALES * (BLOCK_ROWS + 4), F_CLASS = GEMM + 4
};
struct alignas(16) Turn {  /* loads of 16 bytes */
    u32 weights[CLASSES * W_CLASS], x[CLASSES * X_CLASS];
    float scales[CLASSES * S_CLASS], zeros[HAS_ZEROS * CLASSES * S_CLASS + 2];
    float x_scales[CLASSES * F_CLASS], x_sums[HAS_ZEROS * SCALES * CLASSES * F_CLASS + 2];
};
/* Turns, then sums of a tile's columns by [class, row of the block], then those of the lanes' rows. */
union Space { Turn turn; float sums[CLASSES * BLOCK_ROWS * TILE_COLUMNS]; };
typedef float Sums[ROW_TILES][TILES][TILE_SUMS];  /* a lane's */

/* Signed codes less their offset, byte by byte. */
DEVICE u32 centred(u32 codes) {
    return OFFSET ? codes + (128 - OFFSET) * 0x01010101u ^ 0x80808080u : codes;
}

/* A block of the lane's class, of row THREAD / CLASSES. */
DEVICE void stage_weights(Turn &turn, const Codes &w) {
    const int row = THREAD / CLASSES, at = CLASS * S_CLASS + SCALES * row;
    u32 words[BLOCK_WORDS];
    for (int i = 0; i < BLOCK_WORDS; i++) words[i] = centred(w.words[i]);
    put_row(turn.weights + CLASS * W_CLASS + row / 16 * 16 * BLOCK_WORDS, row % 16, words);
    for (int h = 0; h < SCALES; h++) turn.scales[at + h] = w.scales[h];
    for (int h = 0; h < SCALES * HAS_ZEROS; h++) turn.zeros[at + h] = w.zeros[h];
}

/* A block of x: the lane's class of row THREAD / CLASSES. Sums are those of halves, or of all columns. */
struct Loaded { uint4 low, high; float scale, sums[2]; };

DEVICE Loaded load_x(const Input &in, int b) {
    const int row = THREAD / CLASSES < in.n ? THREAD / CLASSES : in.n - 1;
    const uint4 *codes = (const uint4 *)(in.codes + (long long)row * in.pitch) + 2 * b;
    const u32 *factors = (const u32 *)(in.factors + (long long)row * (in.pitch / BLOCK) + b);
    Loaded x = {codes[0], codes[1], as_float(factors[0])};
    for (int h = 0; h < SCALES * HAS_ZEROS; h++) x.sums[h] = x.scale * (float)(int)factors[SCALES == 1 ? 3 : 1 + h];
    return x;
}

DEVICE void stage_x(Turn &turn, const Loaded &x) {
    const int row = THREAD / CLASSES, at = CLASS * F_CLASS + row;
    if (row >= GEMM) return;
    const u32 words[BLOCK_WORDS] = {x.low.x, x.low.y, x.low.z, x.low.w, x.high.x, x.high.y, x.high.z, x.high.w};
    put_column(turn.x + CLASS * X_CLASS + BLOCK_WORDS * row, words);
    turn.x_scales[at] = x.scale;
    for (int h = 0; h < SCALES * HAS_ZEROS; h++) turn.x_sums[h * CLASSES * F_CLASS + at] = x.sums[h];
}

/* Adds half h of a block of class c, or all of it where it has one scale, to the lane's sums of a tile: of 16 rows from
 * `row` on with TILE_COLUMNS rows of x from `token` on. */
DEVICE void add_tile(const Turn &turn, int c, int row, int token, int h, float (&sums)[TILE_SUMS]) {
    float dots[TILE_SUMS];
    const TileColumns x = columns_of(turn.x + c * X_CLASS + BLOCK_WORDS * (token + MMA_ROW));
    const TileRows w = rows_of(turn.weights + c * W_CLASS + BLOCK_WORDS * row);
    multiply_tile(dots, w, x, SCALES == 1 ? BOTH : h);
    UNROLL
    for (int i = 0; i < TILE_SUMS; i++) {
        const int at = c * S_CLASS + SCALES * (row + tile_row(i)) + h, own = c * F_CLASS + token + tile_column(i);
        sums[i] = fma_(turn.scales[at] * turn.x_scales[own], dots[i], sums[i]);
        if (HAS_ZEROS) sums[i] = fma_(turn.zeros[at], turn.x_sums[h * CLASSES * F_CLASS + own], sums[i]);
    }
}

/* Adds the blocks of class c that the turn has, for the rows of a share. */
DEVICE void add_class(const Turn &turn, int c, int share, int n, Sums &sums) {
    UNROLL
    for (int tile = 0; tile < ROW_TILES; tile++)
        UNROLL
        for (int t = 0; t < TILES; t++) {
            if (TILE_COLUMNS * t >= n) break;
            for (int h = 0; h < SCALES; h++)
                add_tile(turn, c, 16 * (ROW_TILES * share + tile), TILE_COLUMNS * t, h, sums[tile][t]);
        }
}

/* own[g] = the sum of the classes, in order, of the lane's row of the matrix with row CLASSES * g + CLASS of x. */
DEVICE void add_classes(float *parts, int c, int share, const Sums &sums, float (&own)[GROUPS]) {
    UNROLL
    for (int t = 0; t < TILES; t++) {
        SYNC();  /* lanes may still read the part before */
        UNROLL
        for (int i = 0; i < ROW_TILES * TILE_SUMS; i++) {
            const int row = c * BLOCK_ROWS + 16 * (ROW_TILES * share + i / TILE_SUMS) + tile_row(i % TILE_SUMS);
            parts[TILE_COLUMNS * row + tile_column(i % TILE_SUMS)] = sums[i / TILE_SUMS][t][i % TILE_SUMS];
        }
        SYNC();
        UNROLL
        for (int g = 0; g < TILE_COLUMNS / CLASSES; g++) {
            const float *at = parts + THREAD / CLASSES * TILE_COLUMNS + CLASSES * g + CLASS;
            float sum = at[0];
            for (int other = 1; other < CLASSES; other++) sum = sum + at[other * BLOCK_ROWS * TILE_COLUMNS];
            own[TILE_COLUMNS / CLASSES * t + g] = sum;
        }
    }
    SYNC();
}

/* own[g] = the lane's row of the matrix times row CLASSES * g + CLASS of x. */
DEVICE void multiply_all(const Matrix &m, int row, const Input &in, Space &space, float (&own)[GROUPS]) {
    const int n_blocks = m.cols / BLOCK, c = THREAD / MMA_LANES / SHARES, share = THREAD / MMA_LANES % SHARES;
    const u32 first = first_block(m, row);
    Sums sums = {};
    Stored w = load_block(m, first + at_most(n_blocks - 1, CLASS));
    Loaded x = load_x(in, at_most(n_blocks - 1, CLASS));
    for (int b = 0; b < n_blocks; b += CLASSES) {
        SYNC();  /* lanes may still read the turn before */
        stage_weights(space.turn, codes_of(m, w, CLASS));
        stage_x(space.turn, x);
        SYNC();
        const int next = at_most(n_blocks - 1, b + CLASSES + CLASS);
        w = load_block(m, first + next);
        x = load_x(in, next);
        if (b + c < n_blocks) add_class(space.turn, c, share, in.n, sums);
    }
    add_classes(space.sums, c, share, sums, own);
}

/* The lane's sums of all rows of x, in the memory of the turns: registers cannot be indexed. */
template <class Task> DEVICE const float *all_sums(const Task &task, Space &space) {
    int rows[Task::R];
    float own[Task::R][GROUPS], *kept = space.sums + THREAD;
    task.find_rows(rows);
    UNROLL
    for (int r = 0; r < Task::R; r++) multiply_all(task.weight, rows[r], task.in, space, own[r]);
    UNROLL
    for (int i = 0; i < Task::R * GROUPS; i++) kept[i * THREADS] = own[i / GROUPS][i % GROUPS];
    return kept;
}

template <class Task> DEVICE void outputs(const Task &task) {
    static_assert(sizeof(Space) >= 4 * Task::R * GROUPS * THREADS, "all_sums keeps its sums in it");
    SHARED(Space, space, 1);
    SHARED(float, scales, GEMM);
    put_scales(task, scales);
    finish_groups<GROUPS>(task, all_sums(task, *space), scales);  /* sums have barriers behind the scales */
}

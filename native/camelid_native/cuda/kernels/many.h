/* many: the outputs of a block for MANY rows of x by float matrix instructions. A turn stages eight blocks of each row
 * of the matrix, a block a thread; MMA_LANES lanes multiply those of their classes. Sums of a class are added in
 * ascending order of blocks, and classes in order, as in product.h. */
#pragma once
#include "finish.h"
#include "mma.h"
#include "product.h"

#define BLOCK_TOKENS MANY
enum {
    GROUPS = MANY / CLASSES,  /* of rows of x, one a lane of a row */
    TILES = MANY / TILE_COLUMNS,  /* of rows of x, as wide as a matrix instruction */
    ROW_TILES = BLOCK_ROWS / 16,
    OWN = CLASSES / (THREADS / MMA_LANES)  /* classes of MMA_LANES lanes */
};
typedef float TileSums[ROW_TILES][TILES][TILE_SUMS];  /* a lane's sums of a class */
#include "many_halves.h"
/* Turns, then sums by [row of the block, row of x], then those of each lane's R rows. */
template <int R> union Space { Turn turn; float sums[R * BLOCK_ROWS * MANY]; };

/* Adds the lane's classes in order to the sums of the classes before, if there are any. */
DEVICE void add_classes(float *sums, const TileSums (&own)[OWN], bool is_first) {
    UNROLL
    for (int g = 0; g < TILES; g++)
        for (int tile = 0; tile < ROW_TILES; tile++)
            for (int i = 0; i < TILE_SUMS; i++) {
                float *at = sums + (16 * tile + tile_row(i)) * MANY + TILE_COLUMNS * g + tile_column(i);
                float v = is_first ? own[0][tile][g][i] : *at + own[0][tile][g][i];
                for (int o = 1; o < OWN; o++) v = v + own[o][tile][g][i];
                *at = v;
            }
}

/* Adds the blocks of the lane's classes to its sums. */
DEVICE void add_turns(const Matrix &m, int row, const Input &in, Turn &turn, TileSums (&sums)[OWN]) {
    const int n_blocks = (m.cols + BLOCK - 1) / BLOCK, first = THREAD / MMA_LANES * OWN;
    for (int b = 0; b < n_blocks; b += CLASSES) {
        SYNC();  /* lanes may still read the turn before */
        if (b + CLASS < n_blocks) stage(turn, CLASS * BLOCK_ROWS + THREAD / CLASSES, m, row, b + CLASS);
        SYNC();
        UNROLL
        for (int o = 0; o < OWN; o++)
            if (b + first + o < n_blocks) add_class(turn, (first + o) * BLOCK_ROWS, m, in, b + first + o, sums[o]);
    }
}

/* own[g] = the lane's row of the matrix times row CLASSES * g + CLASS of x. */
template <int R>
DEVICE void multiply_many(const Matrix &m, int row, const Input &in, Space<R> &space, float (&own)[GROUPS]) {
    TileSums sums[OWN] = {};
    add_turns(m, row, in, space.turn, sums);
    for (int wave = 0; wave < CLASSES / OWN; wave++) {
        SYNC();  /* lanes may still read the last turn, and classes before are added */
        if (THREAD / MMA_LANES == wave) add_classes(space.sums, sums, wave == 0);
    }
    SYNC();
    UNROLL
    for (int g = 0; g < GROUPS; g++) own[g] = space.sums[THREAD / CLASSES * MANY + CLASSES * g + CLASS];
}

/* The lane's sums of all rows of x, in shared memory: registers cannot be indexed. */
template <class Task> DEVICE float *all_sums(const Task &task, Space<Task::R> &space) {
    int rows[Task::R];
    float own[Task::R][GROUPS], *kept = space.sums + THREAD;
    task.find_rows(rows);
    UNROLL
    for (int r = 0; r < Task::R; r++) multiply_many(task.weight, rows[r], task.in, space, own[r]);
    SYNC();  /* lanes may still read the sums of rows */
    UNROLL
    for (int i = 0; i < Task::R * GROUPS; i++) kept[i * THREADS] = own[i / GROUPS][i % GROUPS];
    return kept;
}

template <class Task> DEVICE void outputs(const Task &task) {
    SHARED(Space<Task::R>, space, 1);
    SHARED(float, scales, MANY);
    put_scales(task, scales);
    finish_groups<GROUPS>(task, all_sums(task, *space), scales);  /* sums have barriers behind the scales */
}

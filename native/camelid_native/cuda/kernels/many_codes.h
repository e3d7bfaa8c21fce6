/* many_codes: a turn of many.h with quantized weights. Products of codes are exact; scales as in codes.h. */
#pragma once
#include "codes.h"
#include "mma.h"

/* Blocks by [class, row of the block]. */
struct Turn { u32 words[BLOCK_WORDS * THREADS]; float scales[2 * THREADS], zeros[2 * THREADS]; };

/* Stages block b of a row at `slot`. */
DEVICE void stage(Turn &turn, int slot, const Matrix &m, int row, int b) {
    const Codes w = codes_of(m, load_block(m, (long long)row * (m.cols / BLOCK) + b), b % 8);
    for (int i = 0; i < BLOCK_WORDS; i++) turn.words[BLOCK_WORDS * slot + i] = w.words[i];
    for (int h = 0; h < SCALES; h++) turn.scales[2 * slot + h] = w.scales[h], turn.zeros[2 * slot + h] = w.zeros[h];
}

/* Adds half h of a block, or all of it where it has one scale, to the lane's sums of a tile, whose first row is at
 * `slot`. */
DEVICE void add_tile(const Turn &turn, int slot, const TileColumns &x, const uint4 *factors, int h, float *sums) {
    int dots[TILE_SUMS] = {};
    multiply_tile(dots, rows_of(turn.words + BLOCK_WORDS * slot), x, SCALES == 1 ? BOTH : h);
    UNROLL
    for (int i = 0; i < TILE_SUMS; i++) {
        const uint4 f = factors[i % OWN_COLUMNS];
        const int of_x = (int)(SCALES == 1 ? f.w : h ? f.z : f.y), row = 2 * (slot + tile_row(i)) + h;
        const float scale = as_float(f.x);
        sums[i] = fma_(turn.scales[row] * scale, (float)(dots[i] - OFFSET * of_x), sums[i]);
        if (HAS_ZEROS) sums[i] = fma_(turn.zeros[row] * scale, (float)of_x, sums[i]);
    }
}

/* Adds block b, of the class at `slot`, to the sums of all rows of x. */
DEVICE void add_class(const Turn &turn, int slot, const Matrix &, const Input &in, int b, TileSums &sums) {
    const int last = in.n - 1, n_blocks = in.pitch / BLOCK;
    UNROLL
    for (int g = 0; g < TILES; g++) {
        if (TILE_COLUMNS * g > last) break;
        const int column = TILE_COLUMNS * g + MMA_ROW;
        const long long t = column < last ? column : last;
        const TileColumns x = columns_of((const u32 *)(in.codes + t * in.pitch) + BLOCK_WORDS * b);
        uint4 factors[OWN_COLUMNS];
        for (int i = 0; i < OWN_COLUMNS; i++) {
            const int own = TILE_COLUMNS * g + tile_column(i);
            factors[i] = in.factors[(long long)(own < last ? own : last) * n_blocks + b];
        }
        for (int tile = 0; tile < ROW_TILES; tile++)
            for (int h = 0; h < SCALES; h++) add_tile(turn, slot + 16 * tile, x, factors, h, sums[tile][g]);
    }
}

/* mma: 16 rows of a matrix times TILE_COLUMNS rows of x, over a block of 32 codes in eight words, by MMA_LANES lanes.
 * Sums are exact, so each device's instruction gives the same.
 *
 *   put_row(tile, row, words)     puts a row of a tile into shared memory; put_column(block, words) a row of x
 *   TileRows, TileColumns         the lane's words of a tile's rows, and of its rows of x
 *   rows_of(tile), columns_of(x)  loads them, x from row MMA_ROW on
 *   multiply_tile(dots, w, x, h)  the products of half h of the block, or of BOTH
 *   tile_row(i), tile_column(i)   of the lane's sum i of TILE_SUMS */
#pragma once
#include "gpu.h"

enum { BOTH = 2, BLOCK_WORDS = 8 };

#if defined(MFMA) || defined(WMMA)
/* A lane has codes of one row. An instruction has PER words of a row, a lane WORDS of them: of gfx11 all, so that both
 * halves of a wave have the same, and alternate rows of sums; else lanes 16 apart have consecutive ones. */
#ifdef MFMA
enum { MMA_LANES = 64, PER = MFMA / 4, WORDS = PER / 4, IS_ALTERNATE = 0 };
#else
enum { MMA_LANES = 32, PER = 4, WORDS = WMMA == 11 ? 4 : 2, IS_ALTERNATE = WMMA == 11 };
#endif
#define MMA_LANE (THREAD % MMA_LANES)
#define MMA_ROW (MMA_LANE % 16)
enum { TILE_COLUMNS = 16, TILE_SUMS = 256 / MMA_LANES, N_PARTS = BLOCK_WORDS / PER };
struct TileColumns { u32 words[N_PARTS][WORDS]; };
typedef TileColumns TileRows;

DEVICE void put_column(u32 *block, const u32 (&words)[BLOCK_WORDS]) {
    for (int i = 0; i < BLOCK_WORDS; i++) block[i] = words[i];
}
DEVICE void put_row(u32 *tile, int row, const u32 (&words)[BLOCK_WORDS]) {
    put_column(tile + BLOCK_WORDS * row, words);
}
DEVICE int tile_row(int i) { return IS_ALTERNATE ? 2 * i + MMA_LANE / 16 : MMA_LANE / 16 * TILE_SUMS + i; }
DEVICE int tile_column(int) { return MMA_ROW; }
DEVICE TileColumns columns_of(const u32 *block) {
    TileColumns x;
    for (int part = 0; part < N_PARTS; part++)
        for (int i = 0; i < WORDS; i++) x.words[part][i] = block[PER * part + MMA_LANE / 16 * WORDS % PER + i];
    return x;
}
DEVICE TileRows rows_of(const u32 *tile) { return columns_of(tile + BLOCK_WORDS * MMA_ROW); }
/* With a whole block in an instruction, lanes with the other half's codes of the matrix have zeros. */
DEVICE void multiply_tile(float (&dots)[TILE_SUMS], TileRows w, const TileColumns &x, int h) {
    const bool is_other = N_PARTS == 1 && h != BOTH && MMA_LANE / 32 != h;
    int sums[TILE_SUMS] = {};
    for (int i = 0; i < WORDS && is_other; i++) w.words[0][i] = 0;
    for (int part = 0; part < N_PARTS; part++)
        if (N_PARTS == 1 || h == BOTH || h == part) mma_codes(sums, w.words[part], x.words[part]);
    for (int i = 0; i < TILE_SUMS; i++) dots[i] = (float)sums[i];
}
#else
/* A lane has codes of two rows of a tile, eight apart, and of one row of x: of words LANE % 4 and four on. Its four
 * words of a tile, and its two of x, are side by side. */
enum { MMA_LANES = 32, TILE_COLUMNS = 8, TILE_SUMS = 4 };
#define MMA_LANE LANE
#define MMA_ROW (LANE / 4)
typedef uint4 TileRows;
typedef uint2 TileColumns;

DEVICE void put_row(u32 *tile, int row, const u32 (&words)[BLOCK_WORDS]) {
    u32 *to = tile + row % 8 * 16 + row / 8;
    UNROLL
    for (int i = 0; i < BLOCK_WORDS; i++) to[i % 4 * 4 + i / 4 * 2] = words[i];
}
DEVICE void put_column(u32 *block, const u32 (&words)[BLOCK_WORDS]) {
    UNROLL
    for (int i = 0; i < 4; i++) ((uint2 *)block)[i] = {words[i], words[4 + i]};
}
DEVICE int tile_row(int i) { return LANE / 4 + i / 2 * 8; }
DEVICE int tile_column(int i) { return LANE % 4 * 2 + i % 2; }
DEVICE TileColumns columns_of(const u32 *block) { return load8(block + LANE % 4 * 2); }
DEVICE TileRows rows_of(const u32 *tile) { return load16(tile + 4 * LANE); }
/* Sums start as the bits of 3 << 22, whose last 22 are then an integer: a conversion would take four times as long as
 * the subtraction (throughput of arithmetic instructions, CUDA programming guide). */
DEVICE void multiply_tile(float (&dots)[TILE_SUMS], const TileRows &w, const TileColumns &x, int h) {
    int sums[TILE_SUMS] = {0x4B400000, 0x4B400000, 0x4B400000, 0x4B400000};
    if (h == BOTH) mma_32(sums, w, x);
    else if (h == 0) mma_16(sums, w.x, w.y, x.x);
    else mma_16(sums, w.z, w.w, x.y);
    UNROLL
    for (int i = 0; i < TILE_SUMS; i++) dots[i] = as_float((u32)sums[i]) - 12582912.0f;
}
#endif

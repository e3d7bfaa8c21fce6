/* mma: 16 rows of a matrix times TILE_COLUMNS rows of x, over a block of 32 codes in eight words, by MMA_LANES lanes.
 * Sums are exact, so each device's instruction gives the same.
 *
 *   TileRows, TileColumns                 the lane's words of a block of a tile's rows, and of its rows of x
 *   rows_of(tile), columns_of(x)  loads them: from the tile's first row, rows a block apart; from row MMA_ROW of x
 *   multiply_tile(dots, w, x, h)  adds the products of half h of the block, or of BOTH
 *   tile_row(i), tile_column(i)   of the lane's sum i of TILE_SUMS; the column is that of i % OWN_COLUMNS */
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
enum { TILE_COLUMNS = 16, TILE_SUMS = 256 / MMA_LANES, OWN_COLUMNS = 1, N_PARTS = BLOCK_WORDS / PER };
struct TileColumns { u32 words[N_PARTS][WORDS]; };
typedef TileColumns TileRows;

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
DEVICE void multiply_tile(int *dots, TileRows w, const TileColumns &x, int h) {
    const bool is_other = N_PARTS == 1 && h != BOTH && MMA_LANE / 32 != h;
    for (int i = 0; i < WORDS && is_other; i++) w.words[0][i] = 0;
    for (int part = 0; part < N_PARTS; part++)
        if (N_PARTS == 1 || h == BOTH || h == part) mma_codes(dots, w.words[part], x.words[part]);
}
#else
/* A lane has codes of two rows of a tile, eight apart, and of one row of x. */
enum { MMA_LANES = 32, TILE_COLUMNS = 8, TILE_SUMS = 4, OWN_COLUMNS = 2 };
#define MMA_LANE LANE
#define MMA_ROW (LANE / 4)
struct TileRows { u32 words[2][2]; };
struct TileColumns { u32 words[2]; };

DEVICE int tile_row(int i) { return LANE / 4 + i / 2 * 8; }
DEVICE int tile_column(int i) { return LANE % 4 * 2 + i % 2; }
DEVICE TileColumns columns_of(const u32 *block) { return {{block[LANE % 4], block[4 + LANE % 4]}}; }
DEVICE TileRows rows_of(const u32 *tile) {
    const u32 *w = tile + BLOCK_WORDS * MMA_ROW + LANE % 4;
    return {{{w[0], w[8 * BLOCK_WORDS]}, {w[4], w[8 * BLOCK_WORDS + 4]}}};
}
DEVICE void multiply_tile(int *dots, const TileRows &w, const TileColumns &x, int h) {
    for (int part = 0; part < 2; part++)
        if (h == BOTH || h == part) mma_16(dots, w.words[part][0], w.words[part][1], x.words[part]);
}
#endif

/* many_halves: a turn of many.h with weights of bf16 or f16 and unrounded x, by matrix instructions of bf16. A float32
 * is the sum of three bf16, an f16 of two, without an error. Products of parts below 2^-23 of the whole are left out,
 * the others added from the least on. A block starts from 0, so that the instruction rounds short sums. */
#pragma once
#include "floats.h"
#include "mma.h"

/* Words of a class: those of its rows, and 4, so that classes are in different banks. */
enum { X_PARTS = 3, ROW_WORDS = BLOCK / 2, CLASS_WORDS = ROW_WORDS * BLOCK_ROWS + 4 };
struct Turn { alignas(16) u32 words[CLASSES * CLASS_WORDS]; };
typedef u32 Operands[2][4];  /* of two instructions with 16 columns each: a lane has columns 8 * (LANE % 4) on */

/* The place of the pairs of weights of a row at `slot`. */
DEVICE int words_at(int slot) { return slot / BLOCK_ROWS * CLASS_WORDS + slot % BLOCK_ROWS * ROW_WORDS; }

/* Eight weights from column c on as they are stored, 0 beyond the row's n columns. */
DEVICE void pairs_at(const u8 *row, int c, int n, u32 *to) {
    if (c + 8 <= n && is_aligned(row)) return load_words(row + BYTES * c, to);
    for (int i = 0; i < 4; i++) {
        const u32 low = c + 2 * i < n ? short_at(row, c + 2 * i) : 0;
        to[i] = c + 2 * i + 1 < n ? low | short_at(row, c + 2 * i + 1) << 16 : low;
    }
}

DEVICE void stage(Turn &turn, int slot, const Matrix &m, int row, int b) {
    u32 own[ROW_WORDS];
    for (int i = 0; i < ROW_WORDS; i += 4) pairs_at(row_at(m, row), BLOCK * b + 2 * i, m.cols, own + i);
    for (int i = 0; i < ROW_WORDS; i += 4)
        *(uint4 *)(turn.words + words_at(slot) + i) = {own[i], own[i + 1], own[i + 2], own[i + 3]};
}

/* Takes the next bf16 of each of two floats, which keep the rest. */
DEVICE u32 take_part(float &a, float &b) {
    const u32 low = as_bits(a) & 0xFFFF0000u, high = as_bits(b) & 0xFFFF0000u;
    a = a - as_float(low);
    b = b - as_float(high);
    return low >> 16 | high;
}

/* The parts of the lane's weights of a tile, whose first row is at `slot`: rows LANE / 4 and eight on. */
DEVICE void weights_of(const Turn &turn, int slot, Operands (&w)[PARTS]) {
    for (int r = 0; r < 2; r++) {
        const uint4 v = load16(turn.words + words_at(slot + LANE / 4 + 8 * r) + LANE % 4 * 4);
        const u32 pairs[4] = {v.x, v.y, v.z, v.w};
        for (int i = 0; i < 4; i++) {
            float a, b;
            pair_of(pairs[i], a, b);
            for (int p = 0; p < PARTS; p++) w[p][i / 2][r + i % 2 * 2] = take_part(a, b);
        }
    }
}

/* Adds a block's products of a tile and eight rows of x. */
DEVICE void add_tile(const Operands (&w)[PARTS], const u32 (&x)[X_PARTS][4], float *sums) {
    float dots[4] = {};
    for (int least = X_PARTS - 1; least >= 0; least--)
        for (int p = 0; p < PARTS && p <= least; p++)
            for (int i = 0; i < 2; i++) mma_bf16(dots, w[p][i], x[least - p] + 2 * i);
    for (int i = 0; i < 4; i++) sums[i] = sums[i] + dots[i];
}

/* Adds block b, of the class at `slot`, to the sums of all rows of x. */
DEVICE void add_class(const Turn &turn, int slot, const Matrix &m, const Input &in, int b, TileSums &sums) {
    const int last = in.n - 1;
    Operands w[ROW_TILES][PARTS];
    for (int tile = 0; tile < ROW_TILES; tile++) weights_of(turn, slot + 16 * tile, w[tile]);
    UNROLL
    for (int g = 0; g < TILES; g++) {
        if (TILE_COLUMNS * g > last) break;
        const int column = TILE_COLUMNS * g + MMA_ROW;
        float x[8];
        u32 parts[X_PARTS][4];
        floats_at(in.x + (long long)(column < last ? column : last) * in.stride, BLOCK * b + LANE % 4 * 8, m.cols, x);
        for (int p = 0; p < X_PARTS; p++)
            for (int i = 0; i < 4; i++) parts[p][i] = take_part(x[2 * i], x[2 * i + 1]);
        for (int tile = 0; tile < ROW_TILES; tile++) add_tile(w[tile], parts, sums[tile][g]);
    }
}

/* codes: a block of quantized weights times activations rounded to 8 bits. The sums of codes are exact. */
#pragma once
#include "bits.h"
#include "product.h"

/* A block of rounded activations: codes, their scale, and the sums of the first 16, the last 16 and all codes. */
struct Rounded { u32 words[8]; float scale; int sums[3]; };

DEVICE Rounded rounded_at(const Input &in, int token, int b) {
    const int t = token < in.n ? token : in.n - 1;
    const uint4 *codes = (const uint4 *)(in.codes + (long long)t * in.pitch) + 2 * b;
    const uint4 low = codes[0], high = codes[1], f = in.factors[(long long)t * (in.pitch / BLOCK) + b];
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}, as_float(f.x),
            {(int)f.y, (int)f.z, (int)f.w}};
}

DEVICE float added(const Codes &w, const Rounded &x, float sum) {
    for (int h = 0; h < SCALES; h++) {
        const int n = 8 / SCALES, of_x = SCALES == 1 ? x.sums[2] : x.sums[h];
        int dot = -OFFSET * of_x;
        for (int i = 0; i < n; i++) dot = dot4(w.words[h * n + i], x.words[h * n + i], dot);
        sum = fma_(w.scales[h] * x.scale, (float)dot, sum);
        if (HAS_ZEROS) sum = fma_(w.zeros[h], x.scale * (float)of_x, sum);
    }
    return sum;
}

/* The place of a row's first block among all blocks of a matrix. */
DEVICE u32 first_block(const Matrix &m, int row) { return (u32)row * (m.cols / BLOCK); }

/* Adds block b of the lane's rows to its sums. */
template <int N, int R>
DEVICE void add_block(const Matrix &m, const Stored (&stored)[R], const Input &in, int b, Sum (&sums)[R][N]) {
    Codes w[R];
    for (int r = 0; r < R; r++) w[r] = codes_of(m, stored[r], CLASS);
    UNROLL
    for (int t = 0; t < N; t++) {
        const Rounded x = rounded_at(in, t, b);
        for (int r = 0; r < R; r++) sums[r][t] = added(w[r], x, sums[r][t]);
    }
}

/* A block is loaded AHEAD blocks before its use: compilers move loads of the same turn down to their uses. The work for
 * many rows of x hides the latency, and needs the registers. */
template <int N, int R>
DEVICE void add_blocks(const Matrix &m, const int (&rows)[R], const Input &in, Sum (&sums)[R][N]) {
    const int n_blocks = m.cols / BLOCK, AHEAD = N * R <= 2 ? 2 : 1;
    Stored next[AHEAD][R];
    for (int i = 0; i < AHEAD; i++)
        for (int r = 0; r < R && CLASS + CLASSES * i < n_blocks; r++)
            next[i][r] = load_block(m, first_block(m, rows[r]) + CLASS + CLASSES * i);
    int first = CLASS;
    for (; first + CLASSES * (AHEAD - 1) < n_blocks; first += CLASSES * AHEAD)
        UNROLL
        for (int i = 0; i < AHEAD; i++) {
            const int later = first + CLASSES * (i + AHEAD);
            Stored now[R];
            for (int r = 0; r < R; r++) {
                now[r] = next[i][r];
                if (later < n_blocks) next[i][r] = load_block(m, first_block(m, rows[r]) + later);
            }
            add_block<N, R>(m, now, in, first + CLASSES * i, sums);
        }
    for (int i = 0; i < AHEAD - 1; i++)
        if (first + CLASSES * i < n_blocks) add_block<N, R>(m, next[i], in, first + CLASSES * i, sums);
}

#ifndef VALUE_OFFSET  /* of a codec whose values have another offset than its products */
#define VALUE_OFFSET OFFSET
#define value_codes codes_of
#endif

/* The values of block b of a row. */
DEVICE void values_at(const Matrix &m, int row, int b, float (&values)[BLOCK]) {
    const Codes w = value_codes(m, load_block(m, first_block(m, row) + b), b % 8);
    UNROLL
    for (int i = 0; i < BLOCK; i++) {
        const int h = i / 16 * (SCALES - 1), code = (i8)(w.words[i / 4] >> 8 * (i % 4)) - VALUE_OFFSET;
        values[i] = w.scales[h] * (float)code;
        if (HAS_ZEROS) values[i] = values[i] + w.zeros[h];
    }
}

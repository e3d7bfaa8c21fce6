/* floats: a block of weights without a block's scale, as float32, times unrounded activations. A codec_TYPE.h has
 * eight_at(row, column, values), BYTES of a weight, weight_at(row, column), and Sum, the type of sums: double for
 * types of large values, where gates need digits behind the point. */
#pragma once
#include "product.h"

DEVICE const u8 *row_at(const Matrix &m, int row) { return m.planes[0] + (long long)row * m.cols * BYTES; }
DEVICE bool is_aligned(const void *p) { return ((u64)p & 15) == 0; }

/* Eight weights from column c on, 0 beyond the row's n columns. A codec with HAS_SCALES has scale_at(matrix, row, column),
 * powers of two. */
DEVICE void weights_at(const Matrix &m, int number, int c, int n, float (&w)[8]) {
    const u8 *row = row_at(m, number);
    if (c + 8 <= n && is_aligned(row)) eight_at(row, c, w);
    else for (int i = 0; i < 8; i++) w[i] = c + i < n ? weight_at(row, c + i) : 0.0f;
#ifdef HAS_SCALES
    const float scale = scale_at(m, number, c < n ? c : 0);
    for (int i = 0; i < 8; i++) w[i] = w[i] * scale;
#endif
}

DEVICE void floats_at(const float *row, int c, int n, float (&x)[8]) {
    if (c + 8 > n || !is_aligned(row)) {
        for (int i = 0; i < 8; i++) x[i] = c + i < n ? row[c + i] : 0.0f;
        return;
    }
    const uint4 low = load16(row + c), high = load16(row + c + 4);
    const u32 bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    for (int i = 0; i < 8; i++) x[i] = as_float(bits[i]);
}

DEVICE double fma_(double a, double b, double c) { return a * b + c; }  /* exact products of float32 */

DEVICE Sum dot_of_8(const float (&w)[8], const float (&x)[8]) {
    Sum sum = (Sum)w[0] * (Sum)x[0];
    for (int i = 1; i < 8; i++) sum = fma_((Sum)w[i], (Sum)x[i], sum);
    return sum;
}

/* A block is the sum of sums of 8 columns, then a term of its class: short sums keep more digits. */
template <int N, int R>
DEVICE void add_block(const Matrix &m, const int (&rows)[R], const Input &in, int b, Sum (&sums)[R][N]) {
    const int end = BLOCK * (b + 1) < m.cols ? BLOCK * (b + 1) : m.cols;
    Sum own[R][N] = {};
    for (int c = BLOCK * b; c < end; c += 8) {
        float w[R][8];
        for (int r = 0; r < R; r++) weights_at(m, rows[r], c, end, w[r]);
        UNROLL
        for (int t = 0; t < N; t++) {
            float x[8];
            floats_at(in.x + (long long)(t < in.n ? t : in.n - 1) * in.stride, c, end, x);
            for (int r = 0; r < R; r++) own[r][t] = own[r][t] + dot_of_8(w[r], x);
        }
    }
    for (int r = 0; r < R; r++)
        UNROLL
        for (int t = 0; t < N; t++) sums[r][t] = sums[r][t] + own[r][t];
}

template <int N, int R>
DEVICE void add_blocks(const Matrix &m, const int (&rows)[R], const Input &in, Sum (&sums)[R][N]) {
    for (int b = CLASS; BLOCK * b < m.cols; b += CLASSES) add_block<N, R>(m, rows, in, b, sums);
}

/* The values of block b of a row; those beyond the row's columns are 0. */
DEVICE void values_at(const Matrix &m, int row, int b, float (&values)[BLOCK]) {
    for (int i = 0; i < BLOCK; i += 8) {
        float w[8];
        weights_at(m, row, BLOCK * b + i, m.cols, w);
        for (int j = 0; j < 8; j++) values[i + j] = w[j];
    }
}

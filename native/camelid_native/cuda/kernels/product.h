/* product: rows of a matrix times rows of activations. A row has CLASSES sums: block b of BLOCK columns belongs to
 * class b % CLASSES, a class is summed in ascending order, and the row is ((s0 + s1) + s2) + ... + s7. This order is
 * the same in every kernel. A lane has a class, CLASSES lanes have a row. codes.h or floats.h adds the blocks. */
#pragma once
#include "input.h"

#define CLASS (LANE % CLASSES)

/* Adds the blocks of the lane's class to its sums. Sum is a codec's type. */
template <int N, int R>
DEVICE void add_blocks(const Matrix &m, const int (&rows)[R], const Input &in, Sum (&sums)[R][N]);

/* The sum of the classes of a row in their order, for each of its lanes. */
DEVICE float sum_of_classes(Sum own) {
    const int first = LANE - CLASS;
    Sum total = shuffle(own, first);
    for (int i = 1; i < CLASSES; i++) total = total + shuffle(own, first + i);
    return (float)total;
}

/* sums[r][t] = row rows[r] of m times row t of the input, for each lane of the row. All lanes of a block call it. */
template <int N, int R>
DEVICE void multiply(const Matrix &m, const int (&rows)[R], const Input &in, float (&sums)[R][N]) {
    Sum own[R][N];
    for (int r = 0; r < R; r++)
        UNROLL
        for (int t = 0; t < N; t++) own[r][t] = 0;
    add_blocks<N, R>(m, rows, in, own);
    for (int r = 0; r < R; r++)
        UNROLL
        for (int t = 0; t < N; t++) sums[r][t] = sum_of_classes(own[r][t]);
}

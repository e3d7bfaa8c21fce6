/* deferred: the scale of a deferred norm, which a product applies to its sums: the input has `cols` values, then the
 * sum of squares of each QUAD of them. */
#pragma once
#include "block.h"
#include "step.h"

enum { QUAD = 4, NORM_THREADS = 128 };  /* values of a sum of squares; threads that add these sums */

/* Of rows from `row` on; cols 0: no norm; `scales` of all rows of x, by norm_scale.cu, or 0. */
struct Norm { View x; int row, cols; float eps; const float *scales; };

/* 1 / sqrt(mean of squares of a row of x + eps), added by the first NORM_THREADS in an order that every kernel has. All
 * COUNT threads of the block call it. */
template <int COUNT> DEVICE float scale_of_row(const Norm &norm, int row) {
    const float *squares = row_of(norm.x, row) + norm.cols;
    float sum = 0.0f;
    const int first = COUNT == NORM_THREADS || THREAD < NORM_THREADS ? THREAD : norm.cols;
    for (int c = first; c < norm.cols / QUAD; c += NORM_THREADS) sum = sum + squares[c];
    return 1.0f / sqrt_(block_sum<COUNT>(sum) / (float)norm.cols + norm.eps);
}

/* sums[r][t] *= the scale of row t of n. All threads of the block call it. */
template <int COUNT, int N, int R> DEVICE void scale_sums(const Norm &norm, int n, float (&sums)[R][N]) {
    if (!norm.cols) return;
    UNROLL
    for (int t = 0; t < N; t++) {
        const float scale = scale_of_row<COUNT>(norm, norm.row + (t < n ? t : n - 1));
        UNROLL
        for (int r = 0; r < R; r++) sums[r][t] = sums[r][t] * scale;
    }
}

/* scale_of_row for every lane of a group, which adds in the place of all threads; 1 without a norm. */
DEVICE float scale_by_group(const Norm &norm, int row) {
    if (!norm.cols) return 1.0f;
    const float *squares = row_of(norm.x, row) + norm.cols;
    float total = 0.0f;
    for (int first = 0; first < NORM_THREADS; first += GROUP_LANES) {
        float sum = 0.0f;
        for (int c = first + LANE; c < norm.cols / QUAD; c += NORM_THREADS) sum = sum + squares[c];
        sum = group_sum(sum);
        total = first ? total + sum : sum;
    }
    return 1.0f / sqrt_(total / (float)norm.cols + norm.eps);
}

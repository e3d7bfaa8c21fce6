/* heads: of queries and keys, their RMS norm times a gain and their rotation, in place; of keys and values, the write
 * to the row's page. A group of 32 lanes has a head of a row. */
#pragma once
#include "block.h"
#include "step.h"
#include "turn.h"

/* Columns of x: heads of queries, then k_cols of keys, `turned` together, then those of values. A pair's floats are
 * `next` apart, from float `offset` of a head on, pairs `pitch`. Without a gain there is no norm. */
struct Heads {
    int turned, k_cols, head_dim, offset, next, pitch;
    const float *q_gain, *k_gain;
    float eps;
    Angles angles;

    DEVICE const float *gain_at(int column) const { return column < turned - k_cols ? q_gain : k_gain; }
};

/* 1 / root mean square of n floats, for every lane of a group. */
DEVICE float scale_of_head(const float *x, int n, float eps) {
    float squares = 0.0f;
    for (int c = LANE; c < n; c += GROUP_LANES) squares = fma_(x[c], x[c], squares);
    return 1.0f / sqrt_(group_sum(squares) / (float)n + eps);
}

DEVICE float normed(float v, float scale, const float *gain, int c) { return gain ? v * scale * gain[c] : v; }

/* Normalizes and rotates the head at `x`, whose first column is `column`; n is head_dim, or 0 for no head. All groups
 * of a wave call it. */
DEVICE void turn_head(const Heads &h, float *x, int column, u32 position, int n) {
    const float *gain = h.gain_at(column), scale = gain ? scale_of_head(x, n, h.eps) : 1.0f;
    const int n_turned = 2 * h.angles.pairs;
    if (!n) return;
#pragma unroll 1
    for (int pair = LANE; pair < h.angles.pairs; pair += GROUP_LANES) {
        const int c = h.offset + pair * h.pitch, d = c + h.next;
        const Pair v = {normed(x[c], scale, gain, c), normed(x[d], scale, gain, d)};
        const Pair to = turned(v, angle_of(h.angles, position, pair));
        x[c] = to.x;
        x[d] = to.y;
    }
#pragma unroll 1
    for (int i = LANE; gain && i < n - n_turned; i += GROUP_LANES) {
        const int c = i < h.offset ? i : i + n_turned;
        x[c] = normed(x[c], scale, gain, c);
    }
}

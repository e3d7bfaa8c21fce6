/* norm_rope: the RMS norm of a head of queries or keys, times a gain, then its rotation. A block has a head. */
#pragma once
#include "block.h"
#include "step.h"
#include "turn.h"

#define THREADS 128
enum { MOST_HEAD = 1024 };  /* columns, as in kernels_qkv.py */

/* Columns of x: heads of queries, then k_cols of keys and v_cols of values. A pair's floats are `next` apart, from
 * float `offset` of a head on, pairs `pitch`. */
struct Heads { int turned, k_cols, head_dim, offset, next, pitch; };

/* head = norm of x, * gain. */
DEVICE void load_head(float *head, const float *x, const float *gain, int n, float eps) {
    float squares = 0.0f;
    for (int c = THREAD; c < n; c += THREADS) {
        head[c] = x[c];
        squares = fma_(x[c], x[c], squares);
    }
    const float scale = 1.0f / sqrt_(block_sum<THREADS>(squares) / (float)n + eps);
    for (int c = THREAD; c < n; c += THREADS) head[c] = head[c] * scale * gain[c];
    SYNC();
}

DEVICE void turn_head(float *head, const Heads &heads, const Angles &angles, u32 position) {
    for (int pair = THREAD; pair < angles.pairs; pair += THREADS) {
        float *at = head + heads.offset + pair * heads.pitch;
        const Pair to = turned({at[0], at[heads.next]}, angle_of(angles, position, pair));
        at[0] = to.x;
        at[heads.next] = to.y;
    }
    SYNC();
}

/* Normalizes and rotates the head from column `first` on in place; `head` is shared memory. All threads call it. */
DEVICE void norm_rope_head(float *head, float *x, int first, const float *q_gain, const float *k_gain,
                           const Heads &heads, const Angles &angles, u32 position, float eps) {
    load_head(head, x + first, first < heads.turned - heads.k_cols ? q_gain : k_gain, heads.head_dim, eps);
    turn_head(head, heads, angles, position);
    for (int c = THREAD; c < heads.head_dim; c += THREADS) x[first + c] = head[c];
}

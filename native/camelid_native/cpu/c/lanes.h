/* Sums and maxima across lanes, by shuffles. A table lists the lanes of two vectors that form a new
 * vector. */
#pragma once
#include "simd.h"

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

#if LANES == 16
#define SINGLES_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define SINGLES_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define PAIRS_LOW 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define PAIRS_HIGH 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define FOURS_LOW 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define FOURS_HIGH 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define SWAP_8 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7
#define SWAP_4 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11
#define SWAP_2 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13
#define SWAP_1 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#elif LANES == 8
#define SINGLES_LOW 0, 8, 1, 9, 4, 12, 5, 13
#define SINGLES_HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define PAIRS_LOW 0, 1, 8, 9, 4, 5, 12, 13
#define PAIRS_HIGH 2, 3, 10, 11, 6, 7, 14, 15
#define FOURS_LOW 0, 1, 2, 3, 8, 9, 10, 11
#define FOURS_HIGH 4, 5, 6, 7, 12, 13, 14, 15
#define SWAP_4 4, 5, 6, 7, 0, 1, 2, 3
#define SWAP_2 2, 3, 0, 1, 6, 7, 4, 5
#define SWAP_1 1, 0, 3, 2, 5, 4, 7, 6
#else
#define SINGLES_LOW 0, 4, 1, 5
#define SINGLES_HIGH 2, 6, 3, 7
#define PAIRS_LOW 0, 1, 4, 5
#define PAIRS_HIGH 2, 3, 6, 7
#define SWAP_2 2, 3, 0, 1
#define SWAP_1 1, 0, 3, 2
#endif

/* Steps of lane_sums, each of which folds two vectors into one. fold_singles: [a0 + a2, b0 + b2, a1 + a3,
 * b1 + b3] per four lanes. fold_pairs: sums of four vectors, [a, b, c, d] per four lanes. fold_fours: adds
 * neighbouring groups of four lanes. */
INLINE vf fold_singles(vf a, vf b) {
    return SHUFFLE(a, b, SINGLES_LOW) + SHUFFLE(a, b, SINGLES_HIGH);
}
INLINE vf fold_pairs(vf a, vf b) { return SHUFFLE(a, b, PAIRS_LOW) + SHUFFLE(a, b, PAIRS_HIGH); }
#if LANES > 4
INLINE vf fold_fours(vf a, vf b) { return SHUFFLE(a, b, FOURS_LOW) + SHUFFLE(a, b, FOURS_HIGH); }
#endif

/* Lane i of the result is the sum of the lanes of v[i]; v has LANES vectors. */
INLINE vf lane_sums(const vf *v) {
    vf fours[LANES / 4];
    UNROLLED for (int i = 0; i < LANES / 4; i++)
        fours[i] = fold_pairs(fold_singles(v[4 * i], v[4 * i + 1]), fold_singles(v[4 * i + 2], v[4 * i + 3]));
#if LANES == 16
    return fold_fours(fold_fours(fours[0], fours[1]), fold_fours(fours[2], fours[3]));
#elif LANES == 8
    return fold_fours(fours[0], fours[1]);
#else
    return fours[0];
#endif
}

/* Broadcasts the largest lane to all lanes. */
INLINE vf vf_top_all(vf v) {
#if LANES == 16
    v = vf_max(v, SHUFFLE(v, v, SWAP_8));
#endif
#if LANES >= 8
    v = vf_max(v, SHUFFLE(v, v, SWAP_4));
#endif
    v = vf_max(v, SHUFFLE(v, v, SWAP_2));
    return vf_max(v, SHUFFLE(v, v, SWAP_1));
}

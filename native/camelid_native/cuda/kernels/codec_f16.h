/* codec f16. */
#pragma once
#include "matrix.h"

typedef float Sum;
enum { BYTES = 2 };
#define PARTS 2  /* of a weight as bf16 */

DEVICE void pair_of(u32 pair, float &low, float &high) {
    low = float_of_half(pair & 0xFFFFu), high = float_of_half(pair >> 16);
}
DEVICE float weight_at(const u8 *row, int c) { return half_at(row, c); }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    u32 pairs[4];
    load_words(row + BYTES * c, pairs);
    for (int i = 0; i < 4; i++) pair_of(pairs[i], w[2 * i], w[2 * i + 1]);
}

/* codec bf16: the upper half of a float32. */
#pragma once
#include "matrix.h"

typedef float Sum;
enum { BYTES = 2 };
#define PARTS 1  /* of a weight as bf16 */

DEVICE void pair_of(u32 pair, float &low, float &high) {
    low = as_float(pair << 16), high = as_float(pair & 0xFFFF0000u);
}
DEVICE float weight_at(const u8 *row, int c) { return as_float(short_at(row, c) << 16); }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    u32 pairs[4];
    load_words(row + BYTES * c, pairs);
    for (int i = 0; i < 4; i++) pair_of(pairs[i], w[2 * i], w[2 * i + 1]);
}

/* codec bf16: the upper half of a float32. */
#pragma once
#include "matrix.h"

typedef float Sum;
enum { BYTES = 2 };

DEVICE float weight_at(const u8 *row, int c) { return as_float(short_at(row, c) << 16); }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    u32 pairs[4];
    load_words(row + BYTES * c, pairs);
    for (int i = 0; i < 8; i++) w[i] = as_float(i & 1 ? pairs[i / 2] & 0xFFFF0000u : pairs[i / 2] << 16);
}

/* codec f16. */
#pragma once
#include "matrix.h"

typedef float Sum;
enum { BYTES = 2 };

DEVICE float weight_at(const u8 *row, int c) { return half_at(row, c); }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    u32 pairs[4];
    load_words(row + BYTES * c, pairs);
    for (int i = 0; i < 8; i++) w[i] = float_of_half(pairs[i / 2] >> 16 * (i & 1) & 0xFFFFu);
}

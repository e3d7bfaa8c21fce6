/* codec f32. */
#pragma once
#include "matrix.h"

typedef float Sum;
enum { BYTES = 4 };

DEVICE float weight_at(const u8 *row, int c) { return as_float(word_at(row, c)); }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    const uint4 low = load16(row + BYTES * c), high = load16(row + BYTES * c + 16);
    const u32 bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    for (int i = 0; i < 8; i++) w[i] = as_float(bits[i]);
}

/* codec i64: rounded to nearest. */
#pragma once
#include "matrix.h"

typedef double Sum;
enum { BYTES = 8 };

DEVICE float weight_at(const u8 *row, int c) { return (float)((const long long *)row)[c]; }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    for (int i = 0; i < 8; i++) w[i] = weight_at(row, c + i);
}

/* codec i16. */
#pragma once
#include "matrix.h"

typedef double Sum;
enum { BYTES = 2 };

DEVICE float weight_at(const u8 *row, int c) { return (float)((const short *)row)[c]; }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    for (int i = 0; i < 8; i++) w[i] = weight_at(row, c + i);
}

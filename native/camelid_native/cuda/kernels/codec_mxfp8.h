/* codec mxfp8: a byte of E4M3 a weight | exponent of 32. */
#pragma once
#include "matrix.h"

typedef float Sum;
enum { BYTES = 1 };
#define HAS_SCALES

/* Twice the number: the exponent of float32 is 120 higher than E4M3's; subnormal codes stay subnormal. */
DEVICE float number_of(u32 code) {
    const float magnitude = as_float((code & 127) << 20) * as_float((121 + 127) << 23);
    return (code & 127) == 127 ? as_float(0x7FC00000u) : code & 128 ? -magnitude : magnitude;
}
/* Half of 2^(e - 127), subnormal for e = 0 and e = 1. */
DEVICE float scale_at(const Matrix &m, int row, int c) {
    const u32 e = m.planes[1][(u64)row * (m.cols / BLOCK) + c / BLOCK];
    return as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
DEVICE float weight_at(const u8 *row, int c) { return number_of(row[c]); }
DEVICE void eight_at(const u8 *row, int c, float *w) {
    const uint2 codes = load8(row + c);
    for (int i = 0; i < 8; i++) w[i] = number_of((i < 4 ? codes.x : codes.y) >> 8 * (i % 4) & 255u);
}

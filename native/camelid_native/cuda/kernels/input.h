/* input: rows of activations of a product, as floats and rounded. */
#pragma once
#include "matrix.h"
#include "step.h"

/* n rows of activations: floats `stride` apart; codes `pitch` apart and factors of quantize.cu. */
struct Input { const float *x; const u8 *codes; const uint4 *factors; int stride, pitch, n; };

/* Activations as a kernel's arguments: `parts` vectors a row, `step` floats apart. */
struct Parts { View x; const u8 *codes; const uint4 *factors; int n, step; };

DEVICE Input input_of(const Parts &p, int cols, int part, int row, int n) {
    const long long vector = (long long)row * p.n + part;
    const float *x = row_of(p.x, row) + (long long)part * p.step;
    return {x, p.codes + vector * cols, p.factors + vector * (cols / BLOCK), p.x.stride, p.n * cols, n};
}

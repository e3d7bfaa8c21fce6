/* weighted: a sum of columns by coefficients, in order. */
#pragma once
#include "gpu.h"

/* The sum over j < n of coefs[j] * x[j * size]. */
DEVICE float weighted(const float *x, const float *coefs, int n, int size, float sum = 0.0f) {
    for (int j = 0; j < n; j++) sum = fma_(coefs[j], x[j * size], sum);
    return sum;
}

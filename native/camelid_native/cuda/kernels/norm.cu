/* norm: ops with a sum over a group of columns. A block per group and row. */
#include "block.h"
#include "rounding.h"

enum { RMS, LAYER, L2 };
#define THREADS 256

DEVICE float mean_of(const float *in, int size) {
    float sum = 0.0f;
    for (int c = THREAD; c < size; c += THREADS) sum = sum + in[c];
    return block_sum<THREADS>(sum) / (float)size;
}

/* The sum of squared distances from the mean. */
DEVICE float squares_of(const float *in, int size, float mean) {
    float squares = 0.0f;
    for (int c = THREAD; c < size; c += THREADS) squares = fma_(in[c] - mean, in[c] - mean, squares);
    return block_sum<THREADS>(squares);
}

/* Normalizes each group of `size` columns, then * gain + bias. */
KERNEL(normalize, THREADS)(Step step, View y, View x, const float *gain, const float *bias, int kind, int size,
                           int gain_step, float eps) {
    const int row = BLOCK_Y, group = BLOCK_X;
    if (is_unused(step, x, row)) return;
    const float *in = row_of(x, row) + group * size;
    float *out = row_of(y, row) + group * size;
    const float mean = kind == LAYER ? mean_of(in, size) : 0.0f;
    const float total = squares_of(in, size, mean);
    float scale = 1.0f / sqrt_(total / (float)size + eps);
    if (kind == L2) scale = is_nan(total) ? total : 1.0f / max_(sqrt_(total), eps);
    for (int c = THREAD; c < size; c += THREADS) {
        float v = (in[c] - mean) * scale;
        if (gain) v = v * gain[group * gain_step + c];
        out[c] = bias ? v + bias[c] : v;
    }
}

/* x = x + scale * r; y = rms norm of x, * gain, with the bits of an add and a norm. */
KERNEL(add_norm, THREADS)(Step step, View y, View x, View r, const float *gain, u32 *out_codes, uint4 *out_factors,
                          int size, float scale, float eps) {
    const int row = BLOCK_Y;
    if (is_unused(step, x, row)) return;
    float *sums = row_of(x, row);
    for (int c = THREAD; c < size; c += THREADS) sums[c] = fma_(scale, row_of(r, row)[c], sums[c]);
    const float by = 1.0f / sqrt_(squares_of(sums, size, 0.0f) / (float)size + eps);
    for (int c = THREAD; c < size; c += THREADS) row_of(y, row)[c] = sums[c] * by * gain[c];
    const Codes8 rounded = rounded_from(out_codes, out_factors, row, size);
    if (rounded.words) round_columns<THREADS>(row_of(y, row), size, rounded, 0);
}

/* y[group] = the root of the sum of squares of each group of `size` columns. */
KERNEL(length, THREADS)(Step step, View y, View x, int size) {
    if (is_unused(step, x, BLOCK_Y)) return;
    const float squares = squares_of(row_of(x, BLOCK_Y) + BLOCK_X * size, size, 0.0f);
    if (THREAD == 0) row_of(y, BLOCK_Y)[BLOCK_X] = sqrt_(squares);
}

/* x = max(x - mean - deviations * deviation, 0), with mean and standard deviation of the row. */
KERNEL(cutoff, THREADS)(Step step, View x, int size, float deviations) {
    if (is_unused(step, x, BLOCK_Y)) return;
    float *row = row_of(x, BLOCK_Y);
    const float mean = mean_of(row, size), least = deviations * sqrt_(squares_of(row, size, mean) / (float)size);
    for (int c = THREAD; c < size; c += THREADS) {
        const float v = row[c] - mean - least;
        row[c] = v < 0.0f ? 0.0f : v;  /* NaN stays NaN */
    }
}

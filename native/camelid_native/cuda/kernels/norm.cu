/* norm: normalizes each group of `size` columns, then * gain + bias. A block per group and row. */
#include "block.h"
#include "step.h"

enum { RMS, LAYER, L2 };
#define THREADS 256

KERNEL(norm, THREADS)(Step step, View y, View x, const float *gain, const float *bias, int kind, int size, int gain_step,
                      float eps) {
    const int row = BLOCK_Y, group = BLOCK_X;
    if (is_unused(step, x, row)) return;
    const float *in = row_of(x, row) + group * size;
    float *out = row_of(y, row) + group * size;
    float mean = 0.0f, squares = 0.0f;
    if (kind == LAYER) {
        float sum = 0.0f;
        for (int c = THREAD; c < size; c += THREADS) sum = sum + in[c];
        mean = block_sum<THREADS>(sum) / (float)size;
    }
    for (int c = THREAD; c < size; c += THREADS) squares = fma_(in[c] - mean, in[c] - mean, squares);
    const float total = block_sum<THREADS>(squares);
    float scale = 1.0f / sqrt_(total / (float)size + eps);
    if (kind == L2) scale = is_nan(total) ? total : 1.0f / max_(sqrt_(total), eps);
    for (int c = THREAD; c < size; c += THREADS) {
        float v = (in[c] - mean) * scale;
        if (gain) v = v * gain[group * gain_step + c];
        out[c] = bias ? v + bias[c] : v;
    }
}

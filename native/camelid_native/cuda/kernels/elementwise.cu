/* elementwise: ops whose columns are independent. A thread per column; blocks of a row in x, rows in y. */
#include "act.h"
#include "step.h"
#include "weighted.h"

#define THREADS 256

/* y[row, c] = f(row, c) for each column of the block. */
template <class F> DEVICE void each_column(Step step, View y, int cols, F f) {
    const int c = BLOCK_X * THREADS + THREAD;
    if (!is_unused(step, y, BLOCK_Y) && c < cols) row_of(y, BLOCK_Y)[c] = f(BLOCK_Y, c);
}

KERNEL(add, THREADS)(Step step, View x, View r, int cols, float scale) {
    each_column(step, x, cols, [=](int t, int c) { return fma_(scale, row_of(r, t)[c], row_of(x, t)[c]); });
}

/* x = the sum of the devices' x, device 0 first; `parts` has a copy of each, `each` floats apart. */
KERNEL(all_reduce, THREADS)(Step step, View x, const float *parts, int cols, int n, int each) {
    each_column(step, x, cols, [=](int t, int c) {
        const float *part = parts + (long long)t * x.stride + c;
        float sum = part[0];
        for (int i = 1; i < n; i++) sum += part[(long long)i * each];
        return sum;
    });
}

/* A column of r scales `each` neighbouring columns of x. */
KERNEL(mul, THREADS)(Step step, View x, View r, int cols, int each) {
    each_column(step, x, cols, [=](int t, int c) { return row_of(x, t)[c] * row_of(r, t)[c / each]; });
}

KERNEL(scale, THREADS)(Step step, View x, int cols, float by) {
    each_column(step, x, cols, [=](int t, int c) { return by * row_of(x, t)[c]; });
}

KERNEL(softcap, THREADS)(Step step, View x, int cols, float cap) {
    each_column(step, x, cols, [=](int t, int c) { return cap * tanh_(row_of(x, t)[c] / cap); });
}

KERNEL(clamp, THREADS)(Step step, View x, int cols, float limit) {
    each_column(step, x, cols, [=](int t, int c) {
        const float v = row_of(x, t)[c];
        return v < -limit ? -limit : v > limit ? limit : v;
    });
}

/* xIELU (arXiv 2411.13010). exp(v) - 1 = tanh(v / 2) * (exp(v) + 1), which keeps its digits near 0. */
KERNEL(xielu, THREADS)(Step step, View x, const float *alpha, int cols) {
    each_column(step, x, cols, [=](int t, int c) {
        const float v = row_of(x, t)[c], low = v < alpha[3] ? v : alpha[3];
        const float less = alpha[1] * (tanh_(0.5f * low) * (exp_(low) + 1.0f) - v);
        return alpha[2] * v + (v > 0.0f ? alpha[0] * v * v : less);
    });
}

KERNEL(temperature, THREADS)(Step step, View x, int cols, float by, int length) {
    each_column(step, x, cols, [=](int t, int c) {
        const u32 steps = (position_of(step, t, 0) + 1u) / (u32)length;
        return row_of(x, t)[c] * fma_(by, log_((float)(steps + 1u)), 1.0f);
    });
}

KERNEL(unary, THREADS)(Step step, View x, int cols, int act) {
    each_column(step, x, cols, [=](int t, int c) { return activated(act, row_of(x, t)[c]); });
}

KERNEL(glu, THREADS)(Step step, View y, View gate, View up, int cols, int act) {
    each_column(step, y, cols, [=](int t, int c) { return gated(act, row_of(gate, t)[c], row_of(up, t)[c]); });
}

/* With `by` 0, the weight is one number. */
KERNEL(affine, THREADS)(Step step, View y, View x, const float *weight, const float *bias, int cols, int by) {
    each_column(step, y, cols, [=](int t, int c) {
        const float v = row_of(x, t)[c] * weight[c * by];
        return bias ? v + bias[c] : v;
    });
}

KERNEL(concat, THREADS)(Step step, View y, View a, View b, int cols, int a_cols) {
    each_column(step, y, cols, [=](int t, int c) { return c < a_cols ? row_of(a, t)[c] : row_of(b, t)[c - a_cols]; });
}

KERNEL(gather_rows, THREADS)(Step step, View y, View x, int cols) {
    each_column(step, y, cols, [=](int o, int c) { return row_of(x, (int)output_at(step, o)[0])[c]; });
}

/* y = the sum over slots of probs[slot] * x[slot]. */
KERNEL(combine, THREADS)(Step step, View y, View x, View probs, int cols, int slots) {
    each_column(step, y, cols, [=](int t, int c) { return weighted(row_of(x, t) + c, row_of(probs, t), slots, cols); });
}

/* y[i] = the sum over j < n of coefs[i, j] * x[j], where y[i] and x[j] are groups of `size` columns. */
KERNEL(mix, THREADS)(Step step, View y, View x, View coefs, int cols, int size, int n) {
    each_column(step, y, cols, [=](int t, int c) {
        return weighted(row_of(x, t) + c % size, row_of(coefs, t) + c / size * n, n, size);
    });
}

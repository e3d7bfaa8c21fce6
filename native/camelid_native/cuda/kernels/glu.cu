/* glu: y = act(gate) * up, where gate and up are the halves of weight @ x, also after a deferred norm. Lanes of a row
 * have a row of each half. */
#define FEW_THREADS 256
#include "act.h"
#include "outputs.h"
#include "rounding.h"

struct Glu {
    enum { R = 2 };
    Matrix weight;
    Input in;
    Norm norm;
    View y;
    Codes8 rounded;
    int token, rows, act;

    DEVICE int row() const { return BLOCK_X * BLOCK_ROWS + THREAD / CLASSES; }
    DEVICE void find_rows(int (&own)[R]) const {
        own[0] = row() < rows ? row() : rows - 1;
        own[1] = own[0] + rows;
    }
    DEVICE void finish(const float (&own)[R], int first) const {
        if (first + CLASS < in.n && row() < rows)
            row_of(y, token + first + CLASS)[row()] = gated(act, own[0], own[1]);
        if (rounded.words) round_tile<BLOCK_ROWS>(y, token + first, in.n - first, rounded, rows, BLOCK_X * BLOCK_ROWS);
    }
};

KERNEL(linear_glu, THREADS)(Step step, View y, View x, Matrix weight, const u8 *codes, const uint4 *factors,
                            u32 *out_codes, uint4 *out_factors, int rows, int act, int norm_cols, float eps,
                            const float *scales) {
    const int token = BLOCK_Y * BLOCK_TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const int n = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
    const Parts all = {x, codes, factors, 1, 0};
    const Norm norm = {x, token, norm_cols, eps, scales};
    const Input in = input_of(all, weight.cols, 0, token, n);
    const Glu task = {weight, in, norm, y, {out_codes, out_factors}, token, rows, act};
    outputs(task);
}

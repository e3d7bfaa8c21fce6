/* residual: y = y + scale * (weight @ x + bias); with a gain also z = deferred norm(y): y * gain, then the sum of
 * squares of each QUAD of y. A block has BLOCK_ROWS rows of the matrix and BLOCK_TOKENS rows of x; a group of 32
 * lanes has the four rows of a QUAD. */
#define FEW_THREADS 256
#include "outputs.h"
#include "rounding.h"

DEVICE float quad_sum(float v) {
    v = v + shuffle_xor(v, CLASSES);
    return v + shuffle_xor(v, 2 * CLASSES);
}

struct Residual {
    enum { R = 1 };
    Matrix weight;
    Input in;
    Norm norm;
    View y, z;
    const float *bias, *gain;
    Codes8 rounded;
    int token;
    float scale;

    DEVICE int row() const { return BLOCK_X * BLOCK_ROWS + THREAD / CLASSES; }
    DEVICE void find_rows(int (&own)[R]) const { own[0] = row() < weight.rows ? row() : weight.rows - 1; }
    DEVICE void finish(const float (&own)[R], int first) const {
        const bool is_own = first + CLASS < in.n && row() < weight.rows;
        const int t = token + first + (is_own ? CLASS : 0);
        float v = 0.0f;
        if (is_own) {
            float *at = row_of(y, t) + row();
            v = *at + scale * (bias ? own[0] + bias[row()] : own[0]);
            *at = v;
        }
        if (gain) put_norm(is_own, t, v, first);
    }
    /* The deferred norm of v. */
    DEVICE void put_norm(bool is_own, int t, float v, int first) const {
        const float square = quad_sum(v * v);
        if (is_own) row_of(z, t)[row()] = v * gain[row()];
        if (is_own && row() % QUAD == 0) row_of(z, t)[weight.rows + row() / QUAD] = square;
        if (!rounded.words) return;
        round_tile<BLOCK_ROWS>(z, token + first, in.n - first, rounded, weight.rows, BLOCK_X * BLOCK_ROWS);
    }
};

KERNEL(residual, THREADS)(Step step, View y, View x, View z, Matrix weight, const float *bias, const float *gain,
                          const u8 *codes, const uint4 *factors, u32 *out_codes, uint4 *out_factors, float scale) {
    const int token = BLOCK_Y * BLOCK_TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const int n = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
    const Parts all = {x, codes, factors, 1, 0};
    const Input in = input_of(all, weight.cols, 0, token, n);
    const Residual task = {weight, in, {}, y, z, bias, gain, {out_codes, out_factors}, token, scale};
    outputs(task);
}

/* quantize: activations as 8-bit codes, in blocks of 32 columns with the scale max|x| / 127. Eight lanes have a block,
 * four columns each. An infinity or NaN becomes the scale, with codes of 0. */
#include "matrix.h"
#include "step.h"

#define THREADS 256
#define LEAST_TOP 1e-36f  /* a block below it has codes of 0; 127 / LEAST_TOP is finite */

DEVICE u32 top_of(const float *x) {  /* the bits of magnitudes sort like floats, with NaN above all */
    u32 top = 0;
    for (int i = 0; i < 4; i++) top = (as_bits(x[i]) & 0x7FFFFFFFu) > top ? as_bits(x[i]) & 0x7FFFFFFFu : top;
    for (int mask = 4; mask; mask /= 2) {
        const u32 other = (u32)shuffle_xor((int)top, mask);
        top = other > top ? other : top;
    }
    return top;
}

DEVICE u32 codes_of(const float *x, u32 top) {
    const float size = as_float(top);
    if (!(size > LEAST_TOP) || top >= 0x7F800000u) return 0;
    const float by = 127.0f / size;
    u32 codes = 0;
    for (int i = 0; i < 4; i++) codes |= ((u32)(int)rint_(x[i] * by) & 255u) << 8 * i;
    return codes;
}

/* Row r's part p is vector r * parts + p of `codes`, and its blocks' scales and sums are in `factors`. */
KERNEL(quantize, THREADS)(Step step, View x, u32 *codes, uint4 *factors, int cols, int parts, int part_step) {
    const int row = BLOCK_Y, part = BLOCK_Z, word = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, x, row)) return;
    const bool is_inside = 4 * word < cols;
    const float *in = row_of(x, row) + (long long)part * part_step + 4 * word;
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = is_inside ? in[i] : 0.0f;
    const u32 top = top_of(v), own = codes_of(v, top);
    int half = dot4(own, 0x01010101u, 0);
    half += shuffle_xor(half, 1);
    half += shuffle_xor(half, 2);
    const int other = shuffle_xor(half, 4);
    if (!is_inside) return;
    const long long at = ((long long)row * parts + part) * (cols / 4) + word;
    codes[at] = own;
    if (word % 8 == 0) factors[at / 8] = {as_bits(as_float(top) / 127.0f), (u32)half, (u32)other, (u32)(half + other)};
}

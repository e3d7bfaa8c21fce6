/* rounding: activations as 8-bit codes, in blocks of 32 columns with the scale max|x| / 127. Eight lanes have a block,
 * four columns each. An infinity or NaN becomes the scale, with codes of 0. */
#pragma once
#include "step.h"

#define LEAST_TOP 1e-36f  /* a block below it has codes of 0; 127 / LEAST_TOP is finite */

/* Codes [rows, cols] and a block's factors: its scale, and the sums of its first 16, last 16 and all codes. */
struct Codes8 { u32 *words; uint4 *factors; };

/* Codes from a row on; none without memory for them. */
DEVICE Codes8 rounded_from(u32 *words, uint4 *factors, int row, int cols) {
    const long long at = (long long)row * cols;
    return {words ? words + at / 4 : words, factors + at / 32};
}

DEVICE u32 top_of(const float *x) {  /* the bits of magnitudes sort like floats, with NaN above all */
    u32 top = 0;
    for (int i = 0; i < 4; i++) top = (as_bits(x[i]) & 0x7FFFFFFFu) > top ? as_bits(x[i]) & 0x7FFFFFFFu : top;
    for (int mask = 4; mask; mask /= 2) {
        const u32 other = (u32)shuffle_xor((int)top, mask);
        top = other > top ? other : top;
    }
    return top;
}

DEVICE u32 rounded_codes(const float *x, u32 top) {
    const float size = as_float(top);
    if (!(size > LEAST_TOP) || top >= 0x7F800000u) return 0;
    const float by = 127.0f / size;
    u32 codes = 0;
    for (int i = 0; i < 4; i++) codes |= ((u32)(int)rint_(x[i] * by) & 255u) << 8 * i;
    return codes;
}

/* Writes word `at` of the codes: four columns of a block whose other lanes have its neighbours. All lanes call it. */
DEVICE void put_rounded(const float *from, bool is_inside, Codes8 to, long long at) {
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = is_inside ? from[i] : 0.0f;
    const u32 top = top_of(v), own = rounded_codes(v, top);
    int half = dot4(own, 0x01010101u, 0);
    half += shuffle_xor(half, 1);
    half += shuffle_xor(half, 2);
    const int other = shuffle_xor(half, 4);
    if (!is_inside) return;
    to.words[at] = own;
    if (at % 8 == 0) to.factors[at / 8] = {as_bits(as_float(top) / 127.0f), (u32)half, (u32)other, (u32)(half + other)};
}

/* Rounds n columns that the block has written, a multiple of 32, to the codes from column `at` on. All threads call. */
template <int COUNT> DEVICE void round_columns(const float *from, int n, Codes8 to, long long at) {
    SYNC();
    for (int first = 0; first < n / 4; first += COUNT) {
        const int word = first + THREAD;
        put_rounded(from + 4 * word, 4 * word < n, to, at / 4 + word);
    }
}

/* Rounds the COLS columns from column `at` on, a multiple of 32, of up to eight rows that the block has written, from
 * `first` on. All threads call it. */
template <int COLS> DEVICE void round_tile(View from, int first, int n, Codes8 to, int cols, int at) {
    SYNC();
    const int part = THREAD / 64, row = THREAD / 8 % 8, word = 8 * part + THREAD % 8;
    const bool is_inside = 32 * part < COLS && row < n && at + 4 * word < cols;
    const float *own = row_of(from, first + (is_inside ? row : 0)) + (is_inside ? at + 4 * word : 0);
    put_rounded(own, is_inside, to, ((long long)(first + row) * cols + at) / 4 + word);
}

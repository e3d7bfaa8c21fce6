/* quantize: rounds activations to 8-bit codes. */
#include "rounding.h"
#include "step.h"

#define THREADS 256

/* Row r's part p is vector r * parts + p of `codes`, and its blocks' scales and sums are in `factors`. */
KERNEL(quantize, THREADS)(Step step, View x, u32 *codes, uint4 *factors, int cols, int parts, int part_step) {
    const int row = BLOCK_Y, part = BLOCK_Z, word = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, x, row)) return;
    const float *in = row_of(x, row) + (long long)part * part_step + 4 * word;
    put_rounded(in, 4 * word < cols, {codes, factors}, ((long long)row * parts + part) * (cols / 4) + word);
}

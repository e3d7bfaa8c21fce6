/* defer_norm: z = deferred norm(y): y * gain, then the sum of squares of each QUAD of y, with the bits of residual.cu. A
 * block per row. */
#include "deferred.h"
#include "rounding.h"

#define THREADS 256

KERNEL(defer_norm, THREADS)(Step step, View z, View y, const float *gain, u32 *out_codes, uint4 *out_factors, int size) {
    const int row = BLOCK_Y;
    if (is_unused(step, y, row)) return;
    const float *from = row_of(y, row);
    float *to = row_of(z, row);
    for (int quad = THREAD; quad < size / QUAD; quad += THREADS) {
        float squares[QUAD];
        UNROLL
        for (int i = 0; i < QUAD; i++) {
            const float v = from[QUAD * quad + i];
            squares[i] = v * v;
            to[QUAD * quad + i] = v * gain[QUAD * quad + i];
        }
        to[size + quad] = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    }
    const Codes8 rounded = rounded_from(out_codes, out_factors, row, size);
    if (rounded.words) round_columns<THREADS>(to, size, rounded, 0);
}

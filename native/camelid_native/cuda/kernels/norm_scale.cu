/* norm_scale: the scales of a deferred norm for all blocks of a product of many rows. A block has a row. */
#include "deferred.h"

KERNEL(norm_scale, 128)(Step step, View x, float *scales, int norm_cols, float eps) {
    if (is_unused(step, x, BLOCK_Y)) return;
    const float scale = scale_of_row<NORM_THREADS>({x, 0, norm_cols, eps, scales}, BLOCK_Y);
    if (THREAD == 0) scales[BLOCK_Y] = scale;
}

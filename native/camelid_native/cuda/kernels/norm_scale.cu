/* norm_scale: the scales of a deferred norm for all blocks of a product of many rows. A block of THREADS threads has a
 * row: FEW_THREADS of the product's file, so that sums have the one order. */
#include "deferred.h"

KERNEL(norm_scale, THREADS)(Step step, View x, float *scales, int norm_cols, float eps) {
    if (is_unused(step, x, BLOCK_Y)) return;
    const float scale = scale_of_row<THREADS>({x, 0, norm_cols, eps, scales}, BLOCK_Y);
    if (THREAD == 0) scales[BLOCK_Y] = scale;
}

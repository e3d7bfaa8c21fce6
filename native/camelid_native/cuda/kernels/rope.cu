/* rope: rotates pairs of floats of each head by position * frequency, in place, from float `offset` of a head on, by
 * the positions of a channel. A pair's floats are `next` apart, pairs `pitch`. A thread per pair. */
#include "step.h"
#include "turn.h"

#define THREADS 256

KERNEL(rope, THREADS)(Step step, View x, const float *fine, const float *coarse, int fine_rows, int coarse_rows,
                      int heads, int head_dim, int pairs, int offset, int next, int pitch,
                      int channel) {
    const int row = BLOCK_Y, i = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, x, row) || i >= heads * pairs) return;
    const int pair = i % pairs;
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    float *at = row_of(x, row) + i / pairs * head_dim + offset + pair * pitch;
    const Pair to = turned({at[0], at[next]}, angle_of(angles, position_of(step, row, channel), pair));
    at[0] = to.x;
    at[next] = to.y;
}

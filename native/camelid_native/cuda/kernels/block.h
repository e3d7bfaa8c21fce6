/* block: reductions over the threads of a block, each in one order whatever the device. */
#pragma once
#include "gpu.h"

/* The sum over THREADS threads, for every thread: lanes by 16, 8, 4, 2, 1, then groups in order. */
template <int THREADS> DEVICE float block_sum(float v) {
    SHARED(float, parts, THREADS / GROUP_LANES);
    for (int mask = GROUP_LANES / 2; mask; mask /= 2) v = v + shuffle_xor(v, mask);
    SYNC();  /* threads may still read the parts of the call before */
    if (LANE == 0) parts[THREAD / GROUP_LANES] = v;
    SYNC();
    float sum = parts[0];
    for (int i = 1; i < THREADS / GROUP_LANES; i++) sum = sum + parts[i];
    return sum;
}

/* block: reductions over the threads of a block, each in one order whatever the device. */
#pragma once
#include "gpu.h"

/* True in the last of n blocks that call it with this counter: it sees what the others have written, and leaves the
 * counter at 0 for the next launch. All threads call it. */
DEVICE bool is_last_block(u32 *counter, u32 n) {
    SHARED(u32, before, 1);
    fence_all();
    SYNC();
    if (THREAD == 0) *before = atomic_add(counter, 1);
    SYNC();
    fence_all();
    const bool is_last = *before == n - 1;
    if (is_last && THREAD == 0) *counter = 0;
    return is_last;
}

/* The sum over the 32 lanes of a group, for every lane: by 16, 8, 4, 2, 1. */
DEVICE float group_sum(float v) {
    for (int mask = GROUP_LANES / 2; mask; mask /= 2) v = v + shuffle_xor(v, mask);
    return v;
}

/* The sum over COUNT threads, for every thread: lanes by 16, 8, 4, 2, 1, then groups in order. */
template <int COUNT> DEVICE float block_sum(float v) {
    SHARED(float, parts, COUNT / GROUP_LANES);
    v = group_sum(v);
    SYNC();  /* threads may still read the parts of the call before */
    if (LANE == 0) parts[THREAD / GROUP_LANES] = v;
    SYNC();
    float sum = parts[0];
    for (int i = 1; i < COUNT / GROUP_LANES; i++) sum = sum + parts[i];
    return sum;
}

/* The largest of COUNT values, for every thread; NaN is ignored. */
template <int COUNT> DEVICE float block_max(float v) {
    SHARED(float, parts, COUNT / GROUP_LANES);
    for (int mask = GROUP_LANES / 2; mask; mask /= 2) v = max_(v, shuffle_xor(v, mask));
    SYNC();  /* threads may still read the parts of the call before */
    if (LANE == 0) parts[THREAD / GROUP_LANES] = v;
    SYNC();
    for (int i = 0; i < COUNT / GROUP_LANES; i++) v = max_(v, parts[i]);
    return v;
}

/* The largest of COUNT integers, for every thread. */
template <int COUNT> DEVICE u64 block_max(u64 v) {
    SHARED(u64, parts, COUNT / GROUP_LANES);
    for (int mask = GROUP_LANES / 2; mask; mask /= 2) {
        const u64 other = shuffle_xor(v, mask);
        v = other > v ? other : v;
    }
    SYNC();  /* threads may still read the parts of the call before */
    if (LANE == 0) parts[THREAD / GROUP_LANES] = v;
    SYNC();
    for (int i = 0; i < COUNT / GROUP_LANES; i++) v = parts[i] > v ? parts[i] : v;
    return v;
}

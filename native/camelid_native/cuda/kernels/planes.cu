/* planes: blocks of a weight, as a file has them, cut into planes. */
#include "gpu.h"

#define THREADS 256

/* Planes with a range of each block's bytes, one thread per byte; bytes in no range are left out. */
KERNEL(cut, THREADS)(const u8 *blocks, u8 *first, u8 *second, u8 *third, int n_bytes, int block_bytes, int first_at,
                     int first_end, int second_at, int second_end, int third_at, int third_end) {
    const int i = BLOCK_X * THREADS + THREAD;
    if (i >= n_bytes) return;
    const int block = i / block_bytes, byte = i % block_bytes;
    if (byte >= first_at && byte < first_end) first[block * (first_end - first_at) + byte - first_at] = blocks[i];
    if (byte >= second_at && byte < second_end) second[block * (second_end - second_at) + byte - second_at] = blocks[i];
    if (byte >= third_at && byte < third_end) third[block * (third_end - third_at) + byte - third_at] = blocks[i];
}

/* repack: blocks of 256 weights, as a file has them, into planes in the order of a codec's loads (repack_TYPE.h). */
#include "repack.h"

#define THREADS 256

/* One thread per group of 32 columns of a block. */
KERNEL(repack, THREADS)(const u8 *blocks, u8 *first, u8 *second, u8 *third, int n_bytes) {
    const int group = BLOCK_X * THREADS + THREAD, block = group / 8;
    if ((block + 1) * REPACKED_BYTES > n_bytes) return;
    const Planes to = {{first, second, third}};
    put_group(blocks + block * REPACKED_BYTES, block, group % 8, to);
}

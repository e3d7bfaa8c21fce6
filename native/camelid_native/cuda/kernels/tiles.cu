/* tiles: pairs in the order of their experts, cut into tiles, and vectors of x in that order, so that a product reads
 * an expert's weights once per tile. Pairs of an expert are in ascending order. */
#include "tile.h"

#define THREADS 128
#define MOST_EXPERTS 1024

/* The sum of `own` over the threads before this one. All threads call it. */
DEVICE int sum_before(int own) {
    SHARED(int, parts, THREADS / GROUP_LANES);
    int sum = own;
    for (int step = 1; step < GROUP_LANES; step *= 2) {
        const int other = shuffle(sum, (LANE - step) & (GROUP_LANES - 1));
        sum += LANE < step ? 0 : other;
    }
    if (LANE == GROUP_LANES - 1) parts[THREAD / GROUP_LANES] = sum;
    SYNC();
    for (int i = 0; i < THREAD / GROUP_LANES; i++) sum += parts[i];
    return sum - own;
}

DEVICE int tiles_of(int n, int tile_rows) { return (n + tile_rows - 1) / tile_rows; }

/* Writes an expert's tiles from `at` on; the last expert's block also clears those up to `most`. */
DEVICE void put_tiles(Tile *tiles, int at, int most, Tile all, int tile_rows, bool is_last) {
    const int n = tiles_of(all.count, tile_rows);
    for (int i = THREAD; i < n; i += THREADS) {
        const int done = i * tile_rows, left = all.count - done;
        tiles[at + i] = {all.expert, all.first + done, left < tile_rows ? left : tile_rows, 0};
    }
    for (int i = at + n + THREAD; is_last && i < most; i += THREADS) tiles[i] = {0, 0, 0, 0};
}

/* The order of pairs and the tiles of an expert. A block per expert; a thread has neighbouring pairs. */
KERNEL(sort_pairs, THREADS)(Step step, View ids, u32 *order, Tile *tiles, int n_experts, int slots, int tile_rows,
                            int most_tiles) {
    SHARED(u32, counts, MOST_EXPERTS);
    SHARED(u32, before, 2);  /* pairs and tiles of the experts before */
    const int expert = BLOCK_X, n = count(step, ids.rows_word) * slots, each = tiles_of(n, THREADS);
    const int start = THREAD * each, end = start + each < n ? start + each : n;
    for (int e = THREAD; e < n_experts; e += THREADS) counts[e] = 0;
    if (THREAD < 2) before[THREAD] = 0;
    SYNC();
    int own = 0;
    for (int p = start; p < end; p++) {
        const int e = expert_of(ids, p / slots, p % slots, n_experts);
        atomic_add(counts + e, 1);
        own += e == expert;
    }
    SYNC();
    for (int e = THREAD; e < expert; e += THREADS) {
        atomic_add(before, counts[e]);
        atomic_add(before + 1, (u32)tiles_of((int)counts[e], tile_rows));
    }
    const int own_before = sum_before(own), first = (int)before[0];
    u32 *to = order + first + own_before;
    for (int p = start; p < end; p++)
        if (expert_of(ids, p / slots, p % slots, n_experts) == expert) *to++ = (u32)p;
    const Tile all = {expert, first, (int)counts[expert], 0};
    put_tiles(tiles, (int)before[1], most_tiles, all, tile_rows, expert == n_experts - 1);
}

/* The vector of x of the pair at place BLOCK_X of the order; x has one vector a slot, or one for all slots. */
DEVICE long long vector_of(const u32 *order, int slots, int parts) {
    const int pair = (int)order[BLOCK_X];
    return (long long)(pair / slots) * parts + pair % slots % parts;
}

/* Rounded vectors in order, 16 bytes a thread. */
KERNEL(sort_codes, THREADS)(Step step, View ids, const u32 *order, const uint4 *codes, const uint4 *factors,
                            uint4 *sorted_codes, uint4 *sorted_factors, int cols, int slots, int parts) {
    const int i = BLOCK_Y * THREADS + THREAD, n = cols / 16;
    if (BLOCK_X >= count(step, ids.rows_word) * slots || i >= n) return;
    const long long from = vector_of(order, slots, parts), to = BLOCK_X;
    sorted_codes[to * n + i] = codes[from * n + i];
    if (i < n / 2) sorted_factors[to * (n / 2) + i] = factors[from * (n / 2) + i];
}

/* Vectors of floats in order. */
KERNEL(sort_floats, THREADS)(Step step, View ids, View x, const u32 *order, float *sorted, int cols, int slots,
                             int parts) {
    const int c = BLOCK_Y * THREADS + THREAD;
    if (BLOCK_X >= count(step, ids.rows_word) * slots || c >= cols) return;
    const long long from = vector_of(order, slots, parts);
    sorted[(long long)BLOCK_X * cols + c] = row_of(x, (int)(from / parts))[from % parts * cols + c];
}

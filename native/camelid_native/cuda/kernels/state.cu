/* state: changes of page tables, and copies of pages. */
#include "step.h"

#define THREADS 256
struct Region { u8 *at; int unit_bytes, row_bytes; };  /* one tensor of one layer of a group */

/* table[table_row, index] = unit, for each of the step's updates of this group. */
KERNEL(tables, THREADS)(Step step, Pool state) {
    const int i = BLOCK_X * THREADS + THREAD;
    if (i >= count(step, UPDATES)) return;
    const u32 *update = step.words + step.words[UPDATES_AT] + 4 * i;
    if (update[0] == (u32)state.group) ((u32 *)state.table)[update[1] * state.cols + update[2]] = update[3];
}

/* pool[destination][:rows] = pool[source][:rows], for each of the step's copies of this group, in units of 2 bytes. */
KERNEL(copy, THREADS)(Step step, int group, const Region *regions) {
    if (BLOCK_Y >= count(step, COPIES)) return;
    const u32 *copied = step.words + step.words[COPIES_AT] + 4 * BLOCK_Y;
    const Region region = regions[BLOCK_Z];
    const int i = BLOCK_X * THREADS + THREAD;
    if (copied[0] != (u32)group || i >= (int)copied[3] * region.row_bytes / 2) return;
    const u16 *from = (const u16 *)(region.at + (long long)copied[1] * region.unit_bytes);
    ((u16 *)(region.at + (long long)copied[2] * region.unit_bytes))[i] = from[i];
}

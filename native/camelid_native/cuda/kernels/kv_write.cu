/* kv_write: writes a row's keys and values to its page, in the state's type. A thread per column. */
#include "step.h"

#define THREADS 256

KERNEL(kv_write, THREADS)(Step step, View k, View v, Pool state) {
    const int row = BLOCK_Y, c = BLOCK_X * THREADS + THREAD, is_value = BLOCK_Z;
    if (is_unused(step, k, row)) return;
    const Row own = row_at(step, row);
    const int width = is_value ? state.v_width : state.width;
    const float *from = row_of(is_value ? v : k, row);
    const u32 place = pool_row(state, group_at(step, own.sequence, state.group), own.state_row);
    u8 *to = (is_value ? state.values : state.keys) + place * KvRows::bytes(width);
    KvRows::store(to, c, c < width ? from[c] : 0.0f, c < width);
}

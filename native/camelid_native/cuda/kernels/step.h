/* step: the words of a step (camelid/plan/step.py), views of activations and rows of the KV cache. Grids are as
 * large as the program's capacities, so a block first compares its row with the step's count. */
#pragma once
#include "gpu.h"

enum { FROM_ID, FROM_RING, FROM_SIDE };
enum { ROWS, SEQUENCES, OUTPUTS, UPDATES, COPIES, ORDINAL };  /* header words: counts */
enum { SEQUENCES_AT = 6, OUTPUTS_AT, SAMPLING_AT, BIASES_AT, UPDATES_AT, COPIES_AT, ROWS_AT };

struct Step { const u32 *words; int row_words, sequence_words; };
struct View { float *at; int stride; int rows_word; };  /* columns of a buffer; the header word with its rows */
struct Row { u32 source, value, sequence, state_row, position; };
/* Of a paged group: table row, first kept row, rows held before the step; of others: slots read and written, rows
 * held. */
struct Group { u32 read, write, held; };

DEVICE int count(Step step, int word) { return (int)step.words[word]; }
DEVICE bool is_unused(Step step, View v, int row) { return row >= count(step, v.rows_word); }
DEVICE float *row_of(View v, int row) { return v.at + (long long)row * v.stride; }

DEVICE Row row_at(Step step, int row) {
    const u32 *w = step.words + ROWS_AT + row * step.row_words;
    return {w[0], w[1], w[2], w[3], w[4]};
}
DEVICE u32 position_of(Step step, int row, int channel) {
    return step.words[ROWS_AT + row * step.row_words + 4 + channel];
}
DEVICE const u32 *sequence_at(Step step, u32 sequence) {
    return step.words + step.words[SEQUENCES_AT] + sequence * step.sequence_words;
}
DEVICE const u32 *output_at(Step step, int output) { return step.words + step.words[OUTPUTS_AT] + 3 * output; }
DEVICE Group group_at(Step step, u32 sequence, int group) {
    const u32 *w = sequence_at(step, sequence) + 4 + 3 * group;
    return {w[0], w[1], w[2]};
}

/* One layer of a paged state group: pools of two tensors, and the group's page table. */
struct Pool { u8 *keys, *values; const u32 *table; int cols, unit_rows, group, width, v_width; };

DEVICE u32 pool_row(const Pool &pool, const Group &state, u32 row) {
    return pool.table[state.read * pool.cols + row / pool.unit_rows] * pool.unit_rows + row % pool.unit_rows;
}

struct Ring { u32 *ids; int rows, group; };    /* the last `rows` token ids of a sequence, by slot */
struct Slots { float *at; int width, group; };  /* one layer of recurrent state: `width` floats a slot */

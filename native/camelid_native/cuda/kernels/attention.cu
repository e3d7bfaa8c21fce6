/* attention: y = softmax(cap(scale * q . keys) + bias) @ values over the keys that a row sees, in pages.
 *
 * Many rows: a block per row and HEADS query heads does the splits in turn. Few rows: a block per split writes sums
 * [rows, heads, splits, V_DIM + 2], the values, the highest score and the sum of weights, which a second launch joins.
 * Both join splits in order by the same functions, so they give the same bits. */
#include "attend.h"
#include "rounding.h"

#define PART (V_DIM + 2)

/* Adds the split in `out` and w.sums to the totals: y, and `total` of head THREAD. */
DEVICE void join_split(Work &w, Sums out, float *y, Softmax &total) {
    if (THREAD < HEADS) {
        w.joins[THREAD] = fades_of(total, w.sums[THREAD]);
        total = joined(total, w.sums[THREAD], w.joins[THREAD]);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        share_values(w, out[h]);
        for (int c = THREAD; c < V_DIM; c += THREADS)
            y[h * V_DIM + c] = joined(y[h * V_DIM + c], value_sum(w, c), w.joins[h]);
    }
}

KERNEL(attention, THREADS)(Step step, View y, View q, Pool state, Pool tail, const float *sinks, const float *bias,
                           u32 *out_codes, uint4 *out_factors, int n_heads, int n_kv_heads, int bias_rows, int mask,
                           int window, int split, float scale, float softcap) {
    if (is_unused(step, q, BLOCK_Y)) return;
    SHARED(Work, work, 1);
    Work &w = *work;
    const int head = BLOCK_X * HEADS, kv_head = head / (n_heads / n_kv_heads);
    const Row row = row_at(step, BLOCK_Y);
    const Query query = {(int)row.state_row, head, kv_head, n_heads, n_kv_heads, scale, softcap, bias, bias_rows};
    const Tier store = {state, group_at(step, row.sequence, state.group)};
    const Tier recent = {tail, group_at(step, row.sequence, TAIL_ROWS ? tail.group : state.group)};
    const Keys seen = seen_by(row, store.state, mask, window);
    float *to = row_of(y, BLOCK_Y) + head * V_DIM;
    Softmax total = begun(sinks, head + (THREAD < HEADS ? THREAD : 0));
    load_query(w, row_of(q, BLOCK_Y) + head * HEAD_DIM);
    for (int c = THREAD; c < V_DIM; c += THREADS)
        for (int h = 0; h < HEADS; h++) to[h * V_DIM + c] = 0.0f;
    for (int i = seen.first / split; i * split < seen.end; i++) {
        float out[HEADS][VALUE_UNIT] = {};
        attend_split(w, query, store, recent, in_split(seen, i, split), out);
        join_split(w, out, to, total);
    }
    SYNC();
    if (THREAD < HEADS) w.sums[THREAD] = total;
    SYNC();
    for (int c = THREAD; c < V_DIM; c += THREADS)
        for (int h = 0; h < HEADS; h++) to[h * V_DIM + c] = to[h * V_DIM + c] / w.sums[h].sum;
    const Codes8 rounded = rounded_from(out_codes, out_factors, BLOCK_Y, n_heads * V_DIM);
    if (out_codes) round_columns<THREADS>(to, HEADS * V_DIM, rounded, head * V_DIM);
}

KERNEL(attention_split, THREADS)(Step step, View q, Pool state, Pool tail, const float *bias, float *sums, int n_heads,
                                 int n_kv_heads, int bias_rows, int mask, int window, int split, int n_splits,
                                 float scale, float softcap) {
    if (is_unused(step, q, BLOCK_Y)) return;
    const int head = BLOCK_X * HEADS, kv_head = head / (n_heads / n_kv_heads);
    const Row row = row_at(step, BLOCK_Y);
    const Query query = {(int)row.state_row, head, kv_head, n_heads, n_kv_heads, scale, softcap, bias, bias_rows};
    const Tier store = {state, group_at(step, row.sequence, state.group)};
    const Tier recent = {tail, group_at(step, row.sequence, TAIL_ROWS ? tail.group : state.group)};
    const Keys keys = in_split(seen_by(row, store.state, mask, window), BLOCK_Z, split);
    if (keys.first >= keys.end) return;
    SHARED(Work, work, 1);
    Work &w = *work;
    float out[HEADS][VALUE_UNIT] = {};
    load_query(w, row_of(q, BLOCK_Y) + head * HEAD_DIM);
    attend_split(w, query, store, recent, keys, out);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float *to = sums + (((long long)BLOCK_Y * n_heads + head + h) * n_splits + BLOCK_Z) * PART;
        share_values(w, out[h]);
        for (int c = THREAD; c < V_DIM; c += THREADS) to[c] = value_sum(w, c);
        if (THREAD == 0) to[V_DIM] = w.sums[h].top, to[V_DIM + 1] = w.sums[h].sum;
    }
}

KERNEL(attention_join, THREADS)(Step step, View y, Pool state, const float *sinks, const float *sums, u32 *out_codes,
                                uint4 *out_factors, int n_heads, int mask, int window, int split, int n_splits) {
    if (is_unused(step, y, BLOCK_Y)) return;
    const Row row = row_at(step, BLOCK_Y);
    const Keys seen = seen_by(row, group_at(step, row.sequence, state.group), mask, window);
    const float *parts = sums + ((long long)BLOCK_Y * n_heads + BLOCK_X) * n_splits * PART;
    for (int c = THREAD; c < V_DIM; c += THREADS) {
        Softmax total = begun(sinks, BLOCK_X);
        float out = 0.0f;
        for (int i = seen.first / split; i * split < seen.end; i++) {
            const float *part = parts + (long long)i * PART;
            const Softmax one = {part[V_DIM], part[V_DIM + 1]};
            const Fades by = fades_of(total, one);
            total = joined(total, one, by);
            out = joined(out, part[c], by);
        }
        row_of(y, BLOCK_Y)[BLOCK_X * V_DIM + c] = out / total.sum;
    }
    const Codes8 rounded = rounded_from(out_codes, out_factors, BLOCK_Y, n_heads * V_DIM);
    const float *from = row_of(y, BLOCK_Y) + BLOCK_X * V_DIM;
    if (out_codes) round_columns<THREADS>(from, V_DIM, rounded, BLOCK_X * V_DIM);
}

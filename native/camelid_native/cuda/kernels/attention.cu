/* attention: y = softmax(cap(scale * q . keys) + bias) @ values over the keys that a row sees, in pages, for few rows:
 * blocks share the splits of a row and write sums [rows, heads, splits, V_DIM + 2], the values, the highest score and
 * the sum of weights, which a second launch joins in order. attention_rows.cu gives the same bits. */
#include "attend.h"
#include "rounding.h"

#define PART (V_DIM + 2)
enum { MOST_SPLITS = 64 };  /* as in kernels_attention.py */

/* Writes the split in `out` and w.sums, of the first head to `to` and of each next one `pitch` floats on. */
DEVICE void write_split(const Work &w, const float *out, float *to, long long pitch) {
    if (THREAD < HEADS) {
        to[THREAD * pitch + V_DIM] = w.sums[THREAD].top;
        to[THREAD * pitch + V_DIM + 1] = w.sums[THREAD].sum;
    }
    UNROLL
    for (int i = 0; i < OWN_VALUES; i++) {
        const int at = own_column(i);
        if (at >= 0) to[at / V_DIM * pitch + at % V_DIM] = out[i];
    }
}

KERNEL(attention_split, THREADS)(Step step, View q, Pool state, Pool tail, const float *bias, float *sums, int n_heads,
                                 int n_kv_heads, int bias_rows, int mask, int window, int split, int n_splits,
                                 int n_shares, float scale, float softcap) {
    if (is_unused(step, q, BLOCK_Y)) return;
    const int head = BLOCK_X * HEADS;
    const Row row = row_at(step, BLOCK_Y);
    Query query = query_of(state, head, n_heads, n_kv_heads);
    query.state_row = (int)row.state_row, query.bias = bias, query.bias_rows = bias_rows;
    query.scale = scale, query.softcap = softcap;
    SHARED(Work, work, 1);
    SHARED(Tiers, indexed, 1);
    const Tiers made = tiers_of(step, row.sequence, state, tail), &tiers = TAIL_ROWS ? *indexed : made;
    if (THREAD == 0) *indexed = made;
    SYNC();
    const Keys seen = seen_by(row, tiers.all[0].state, mask, window);
    const int first = seen.first / split + BLOCK_Z;
    if (first * split >= seen.end) return;
    Work &w = *work;
    const long long pitch = (long long)n_splits * PART;
    float *to = sums + ((long long)BLOCK_Y * n_heads + head) * pitch;
    load_query(w, row_of(q, BLOCK_Y) + head * HEAD_DIM);
    for (int i = first; i * split < seen.end; i += n_shares) {
        float out[OWN_VALUES] = {};
        attend_split(w, query, tiers, in_split(seen, i, split), out);
        write_split(w, out, to + i * PART, pitch);
    }
}

/* The joins of `n` splits in order: the highest score before each is the highest of all before. */
DEVICE void find_joins(Fades *joins, const float *tops, int n, float top) {
    if (THREAD >= n) return;
    for (int i = 0; i < THREAD; i++) top = max_(top, tops[i]);
    joins[THREAD] = fades_of({top, 0.0f}, {tops[THREAD], 0.0f});
}

KERNEL(attention_join, THREADS)(Step step, View y, Pool state, const float *sinks, const float *sums, u32 *out_codes,
                                uint4 *out_factors, int n_heads, int mask, int window, int split, int n_splits) {
    if (is_unused(step, y, BLOCK_Y)) return;
    SHARED(float, tops, MOST_SPLITS);
    SHARED(float, weights, MOST_SPLITS);
    SHARED(Fades, joins, MOST_SPLITS);
    const Row row = row_at(step, BLOCK_Y);
    const Keys seen = seen_by(row, group_at(step, row.sequence, state.group), mask, window);
    const int first = seen.first / split, n = seen.first < seen.end ? (seen.end - 1) / split + 1 - first : 0;
    const float *parts = sums + (((long long)BLOCK_Y * n_heads + BLOCK_X) * n_splits + first) * PART;
    const Softmax begin = begun(sinks, BLOCK_X);
    if (THREAD < n) tops[THREAD] = parts[THREAD * PART + V_DIM], weights[THREAD] = parts[THREAD * PART + V_DIM + 1];
    SYNC();
    find_joins(joins, tops, n, begin.top);
    SYNC();
    for (int c = THREAD; c < V_DIM; c += THREADS) {
        float sum = begin.sum, out = 0.0f;
#pragma unroll 8
        for (int i = 0; i < n; i++) {
            sum = joined(sum, weights[i], joins[i]);
            out = joined(out, parts[i * PART + c], joins[i]);
        }
        row_of(y, BLOCK_Y)[BLOCK_X * V_DIM + c] = out / sum;
    }
    const Codes8 rounded = rounded_from(out_codes, out_factors, BLOCK_Y, n_heads * V_DIM);
    const float *from = row_of(y, BLOCK_Y) + BLOCK_X * V_DIM;
    if (out_codes) round_columns<THREADS>(from, V_DIM, rounded, BLOCK_X * V_DIM);
}

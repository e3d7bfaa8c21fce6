/* attention of many rows: a block per HEADS query heads and up to TILE_ROWS consecutive rows of a sequence, which does
 * the splits in turn. Pieces of few rows are done a row at a time. The bits are those of attention.cu. */
#include "attend_tile.h"
#include "rounding.h"

enum {
    LEAST_ROWS = TILE_ROWS > 8 ? TILE_ROWS / 4 : 2,  /* of a piece that is worth a tile */
    MOST_TILE_VALUES = 512  /* a head's, whose sums fit registers */
};
struct Span { int first, n; };  /* rows of a step */
union Both { Work row; TileWork tile; };

/* What the rows of a block have in common. */
struct Job {
    Step step;
    View y, q;
    Query query;
    Tiers tiers;
    const float *sinks;
    int mask, window, split;
};

/* Block y < n_sequences has the first rows of sequence y, up to a multiple of TILE_ROWS; each next block TILE_ROWS rows
 * from a multiple on, the last ones first, as they see most keys. */
DEVICE Span rows_of_block(Step step, int n_sequences, int n_tiles) {
    const int tile = n_tiles - 1 - (BLOCK_Y - n_sequences), n = count(step, ROWS);
    if (BLOCK_Y < n_sequences ? BLOCK_Y >= count(step, SEQUENCES) : tile * TILE_ROWS >= n) return {0, 0};
    const u32 sequence = BLOCK_Y < n_sequences ? BLOCK_Y : row_at(step, tile * TILE_ROWS).sequence;
    const u32 *words = sequence_at(step, sequence);
    const int begin = (int)words[0], end = begin + (int)words[1];
    const int first = BLOCK_Y < n_sequences ? begin : tile * TILE_ROWS, border = (first / TILE_ROWS + 1) * TILE_ROWS;
    if (BLOCK_Y >= n_sequences && begin == first) return {0, 0};
    return {first, (end < border ? end : border) - first};
}

/* Adds the split in `out` and w.sums to the totals: y, and `total` of head THREAD. */
DEVICE void join_split(Work &w, const float *out, float *y, Softmax &total) {
    if (THREAD < HEADS) {
        w.joins[THREAD] = fades_of(total, w.sums[THREAD]);
        total = joined(total, w.sums[THREAD], w.joins[THREAD]);
    }
    SYNC();
    UNROLL
    for (int i = 0; i < OWN_VALUES; i++) {
        const int at = own_column(i);
        if (at >= 0) y[at] = joined(y[at], out[i], w.joins[at / V_DIM]);
    }
}

DEVICE void attend_row(Work &w, const Job &job, int number) {
    const Row row = row_at(job.step, number);
    Query query = job.query;
    query.state_row = (int)row.state_row;
    const Keys seen = seen_by(row, job.tiers.all[0].state, job.mask, job.window);
    float *y = row_of(job.y, number) + query.head * V_DIM;
    Softmax total = begun(job.sinks, query.head + (THREAD < HEADS ? THREAD : 0));
    SYNC();  /* threads may still read the row before */
    load_query(w, row_of(job.q, number) + query.head * HEAD_DIM);
#pragma unroll 1
    for (int i = 0; i < OWN_VALUES; i++)
        if (own_column(i) >= 0) y[own_column(i)] = 0.0f;
#pragma unroll 1
    for (int i = seen.first / job.split; i * job.split < seen.end; i++) {
        float out[OWN_VALUES] = {};
        attend_split(w, query, job.tiers, in_split(seen, i, job.split), out);
        join_split(w, out, y, total);
    }
    SYNC();
    if (THREAD < HEADS) w.sums[THREAD] = total;
    SYNC();
#pragma unroll 1
    for (int i = 0; i < OWN_VALUES; i++)
        if (own_column(i) >= 0) y[own_column(i)] = y[own_column(i)] / w.sums[own_column(i) / V_DIM].sum;
}

/* Whether column c of a thread's cell is one of a head. */
DEVICE bool is_inside(int slice, int c) {
    return V_DIM % 4 == 0 || slice * SLICE_COLS + other_unit<CELL>() + c < V_DIM;
}

/* The columns of y that a thread's values of query `j` of its cell are for, or null. */
DEVICE float *columns_of(const TileWork &w, int slice, int j) {
    const int column = slice * SLICE_COLS + other_unit<CELL>();
    float *y = w.y[query_unit<CELL>() + j];
    return y && column < V_DIM ? y + column : nullptr;
}

/* Places what query `i` begins with: of row min(i / HEADS, n - 1) and head i % HEADS. */
DEVICE void begin_query(TileWork &w, const Job &job, Span rows, int i) {
    const int row = i / HEADS, number = rows.first + (row < rows.n ? row : rows.n - 1);
    const int head = job.query.head + i % HEADS;
    const Row words = row_at(job.step, number);
    w.state_rows[i] = (int)words.state_row;
    w.seen[i] = seen_by(words, job.tiers.all[0].state, job.mask, job.window);
    w.totals[i] = begun(job.sinks, head);
    w.q[i] = row_of(job.q, number) + head * HEAD_DIM;
    w.y[i] = row < rows.n ? row_of(job.y, number) + head * V_DIM : nullptr;
}

DEVICE void begin_tile(TileWork &w, const Job &job, Span rows) {
    if (THREAD < QUERIES) begin_query(w, job, rows, THREAD);
    SYNC();
#pragma unroll 1
    for (int i = 0; i < SLICES * CELL; i++) {
        float *y = columns_of(w, i / CELL, i % CELL);
        for (int c = 0; y && c < 4 && is_inside(i / CELL, c); c++) y[c] = 0.0f;
    }
}

/* Adds a split's sums to the totals of the queries that see a key of it. */
DEVICE void join_tile(TileWork &w, const Job &job, int split, Slices out) {
    SYNC();
    if (THREAD < QUERIES) {
        const Keys keys = w.used[THREAD] = in_split(w.seen[THREAD], split, job.split);
        const Softmax total = w.totals[THREAD];
        w.joins[THREAD] = fades_of(total, w.sums[THREAD]);
        if (keys.first < keys.end) w.totals[THREAD] = joined(total, w.sums[THREAD], w.joins[THREAD]);
    }
    SYNC();
    UNROLL
    for (int i = 0; i < SLICES * CELL; i++) {
        const int query = query_unit<CELL>() + i % CELL;
        float *y = columns_of(w, i / CELL, i % CELL);
        if (!y || w.used[query].first >= w.used[query].end) continue;
        UNROLL
        for (int c = 0; c < 4; c++)
            if (is_inside(i / CELL, c)) y[c] = joined(y[c], out[i / CELL][i % CELL][c], w.joins[query]);
    }
}

/* The sums of a split of all queries. */
DEVICE void attend_tile_split(TileWork &w, const Job &job, int split) {
    const Keys keys = in_split(w.seen[LANE], split, job.split);
    const int state_row = w.state_rows[LANE];
    const bool is_none = keys.first >= keys.end;
    float out[SLICES][CELL][4] = {};
    if (THREAD < QUERIES) w.sums[THREAD] = {LOWEST, 0.0f};
#pragma unroll 1
    for (const Tier &tier : job.tiers.all)
        attend_tier(w, job.query, tier, is_none ? Keys{0, 0} : read_from(tier, state_row, keys), out);
    join_tile(w, job, split, out);
}

DEVICE void attend_rows(TileWork &w, const Job &job, Span rows) {
    begin_tile(w, job, rows);
    const Keys any = any_of(w.seen[LANE]);
#pragma unroll 1
    for (int i = any.first / job.split; i * job.split < any.end; i++) {
        attend_tile_split(w, job, i);
        SYNC();
    }
#pragma unroll 1
    for (int i = 0; i < SLICES * CELL; i++) {
        float *y = columns_of(w, i / CELL, i % CELL);
        const float sum = w.totals[query_unit<CELL>() + i % CELL].sum;
        for (int c = 0; y && c < 4 && is_inside(i / CELL, c); c++) y[c] = y[c] / sum;
    }
}

KERNEL(attention_rows, THREADS)(Step step, View y, View q, Pool state, Pool tail, const float *sinks, const float *bias,
                                u32 *out_codes, uint4 *out_factors, int n_heads, int n_kv_heads, int bias_rows,
                                int mask, int window, int split, int n_sequences, int n_tiles, float scale,
                                float softcap) {
    const Span rows = rows_of_block(step, n_sequences, n_tiles);
    if (rows.n <= 0) return;
    SHARED(Both, both, 1);
    const u32 sequence = row_at(step, rows.first).sequence;
    const int head = BLOCK_X * HEADS;
    Query query = query_of(state, head, n_heads, n_kv_heads);
    query.bias = bias, query.bias_rows = bias_rows, query.scale = scale, query.softcap = softcap;
    const Tiers tiers = tiers_of(step, sequence, state, tail);
    const Job made = {step, y, q, query, tiers, sinks, mask, window, split};
    SHARED(Job, shared_job, 1);
    if (THREAD == 0) *shared_job = made;
    SYNC();
    const Job &job = *shared_job;
    if (V_DIM <= MOST_TILE_VALUES && rows.n >= LEAST_ROWS) attend_rows(both->tile, job, rows);
    else
#pragma unroll 1
        for (int i = 0; i < rows.n; i++) attend_row(both->row, job, rows.first + i);
    for (int i = rows.first; out_codes && i < rows.first + rows.n; i++) {
        const Codes8 rounded = rounded_from(out_codes, out_factors, i, n_heads * V_DIM);
        round_columns<THREADS>(row_of(y, i) + head * V_DIM, HEADS * V_DIM, rounded, head * V_DIM);
    }
}

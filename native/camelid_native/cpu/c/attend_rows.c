/* Attention of a block of rows of one sequence to one chunk of keys, for the query heads of one KV head.
 *
 * Up to FEW_QUERIES queries read keys and values in place. For more queries, or if a head does not end at a
 * vector border, both are first decoded to float32. The values are equal, so a query's bits are, too. */
#include "attend_rows.h"
#include "codecs.h"

enum { FEW_QUERIES = 8 };

/* A thread's memory for a block: a query and a total for each row and current head, and decoded rows. */
typedef struct {
    const attend_op *a;
    uint32_t first_row, end_row;      /* rows of the block */
    uint32_t first_head, n_heads;     /* current query heads */
    float *queries, *totals;          /* [rows, n_heads, ...] */
    float *tiles[N_TENSORS], *decoded;
} attend_block;

INLINE uint32_t query_floats(const attend_how *how) { return how->k_vectors * LANES; }
INLINE uint32_t query_slot(const attend_block *block, uint32_t row, uint32_t head) {
    return (row - block->first_row) * block->n_heads + head - block->first_head;
}
INLINE float *query_of(const attend_block *block, uint32_t row, uint32_t head) {
    return block->queries + (uint64_t)query_slot(block, row, head) * query_floats(&block->a->how);
}
INLINE float *total_of(const attend_block *block, uint32_t row, uint32_t head) {
    return block->totals + (uint64_t)query_slot(block, row, head) * total_floats(&block->a->how);
}

/* Sets the block to rows of one sequence and a range of KV heads: copies the queries, padded to whole
 * vectors, and clears their totals. */
static void begin_block(attend_block *block, uint32_t first_row, uint32_t end_row, cam_range kv_heads) {
    const attend_op *a = block->a;
    const uint32_t n = query_floats(&a->how);
    block->first_row = first_row, block->end_row = end_row;
    block->first_head = kv_heads.start * a->group;
    block->n_heads = (kv_heads.end - kv_heads.start) * a->group;
    for (uint32_t row = first_row; row < end_row; row++)
        for (uint32_t head = block->first_head; head < block->first_head + block->n_heads; head++) {
            float *q = query_of(block, row, head);
            memset(q + a->q_dim, 0, (n - a->q_dim) * sizeof(float));
            memcpy(q, row_of(a->q, row) + (uint64_t)head * a->q_dim, a->q_dim * sizeof(float));
            clear_total(&a->how, total_of(block, row, head));
        }
}

/* Addresses of keys [start, end) of a chunk. */
static void find_rows(key_place place, uint32_t first, uint32_t start, uint32_t end, const uint8_t **rows) {
    uint32_t unit = (first + start) / place.unit_rows, within = (first + start) % place.unit_rows;
    for (uint32_t j = start; j < end; unit++, within = 0) {
        const uint64_t row = (uint64_t)(place.table ? place.table[unit] : unit) * place.unit_rows + within;
        const uint8_t *at = AT(const uint8_t, place.at + row * place.row_bytes);
        for (; j < end && within < place.unit_rows; j++, within++, at += place.row_bytes) rows[j] = at;
    }
}

/* Decodes `dim` values of rows [start, end) into a tile, each row padded with zeros to whole vectors. */
static void decode_tile(const chunk_rows *rows, uint32_t start, uint32_t end, uint32_t dim, float *tile,
                        float *decoded, chunk_rows *found) {
    const cam_codec *codec = &codecs[rows->type];
    const uint32_t first = rows->column / codec->block, last = (rows->column + dim - 1) / codec->block;
    const uint32_t width = (dim + LANES - 1) / LANES * LANES;
    found->type = KEYS_F32, found->column = 0;
    found->ahead_start = found->ahead_end = found->ahead_pace = 0;
    for (uint32_t j = start; j < end; j++, tile += width) {
        codec->decode(rows->rows[j] + (uint64_t)first * codec->block_bytes, decoded,
                      (last - first + 1) * codec->block);
        memcpy(tile, decoded + (rows->column - first * codec->block), dim * sizeof(float));
        memset(tile + dim, 0, (width - dim) * sizeof(float));
        found->rows[j] = (const uint8_t *)tile;
    }
}

/* Keys and values of a chunk: stored rows, and decoded tiles. */
typedef struct { chunk_rows rows[N_TENSORS], tiles[N_TENSORS]; } found_chunk;

/* Sets the rows of one tensor to a KV head, and the range of next rows to prefetch meanwhile. */
static void turn_to(chunk_rows *rows, uint32_t column, uint32_t n_keys, cam_range ahead) {
    rows->column = column;
    rows->ahead_start = ahead.start, rows->ahead_end = ahead.end;
    rows->ahead_pace = ((ahead.end - ahead.start) * rows->ahead_lines + n_keys - 1) / n_keys;
}

/* True if the queries are few and the head's keys and values begin and end at vector borders. */
static uint32_t is_read_in_place(const chunk_rows *rows, const uint32_t *dims, uint32_t n_queries) {
    for (uint32_t i = 0; i < N_TENSORS; i++)
        if (dims[i] % LANES || rows[i].column % LANES) return 0;
    return rows[KEYS].type == KEYS_F32 || n_queries <= FEW_QUERIES;
}

/* Keys and values of a head: both in place or both decoded, since one kernel reads both. */
static void find_head(const attend_block *block, found_chunk *chunk, cam_range keys, uint32_t n_queries,
                      chunk_rows *found[N_TENSORS]) {
    const uint32_t dims[N_TENSORS] = {block->a->q_dim, block->a->v_dim};
    const uint32_t is_in_place = is_read_in_place(chunk->rows, dims, n_queries);
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        found[i] = is_in_place ? &chunk->rows[i] : &chunk->tiles[i];
        if (is_in_place) continue;
        decode_tile(&chunk->rows[i], keys.start, keys.end, dims[i], block->tiles[i], block->decoded,
                    &chunk->tiles[i]);
    }
}

/* Queries that see the same keys of a chunk, collected up to MOST_QUERIES. */
typedef struct {
    const attend_how *how;
    chunk_rows *const *found;
    uint32_t first, n;
    cam_range keys;
    attend_query queries[MOST_QUERIES];
} attend_batch;

/* Computes the collected queries. Only the head's first batch prefetches the next chunk. */
static void flush_batch(attend_batch *batch) {
    if (batch->n == 0) return;
    chunk_rows *keys = batch->found[KEYS], *values = batch->found[VALUES];
    attend_kernels[keys->type][batch->n - 1](batch->how, batch->queries, keys, values, batch->first,
                                             batch->keys.start, batch->keys.end);
    keys->ahead_pace = values->ahead_pace = 0;
    batch->n = 0;
}

static void add_query(attend_batch *batch, cam_range keys, attend_query query) {
    const uint32_t is_same = keys.start == batch->keys.start && keys.end == batch->keys.end;
    if (batch->n == MOST_QUERIES || !is_same) flush_batch(batch);
    batch->keys = keys;
    batch->queries[batch->n++] = query;
}

/* Number of rows of a block that read a chunk in a tier, and the union of the keys they see. */
typedef struct { uint32_t n; cam_range keys; } rows_seeing;

static cam_range seen_in_tier(const attend_op *a, uint32_t row, uint32_t chunk, uint32_t tier) {
    const keys_seen seen = a->seen(a, row);
    return tier_of(seen, chunk) == tier ? seen_of_chunk(seen, chunk) : (cam_range){0, 0};
}

static rows_seeing find_seeing(const attend_block *block, uint32_t chunk, uint32_t tier) {
    rows_seeing found = {0, {CHUNK_KEYS, 0}};
    for (uint32_t row = block->first_row; row < block->end_row; row++) {
        const cam_range keys = seen_in_tier(block->a, row, chunk, tier);
        if (keys.start == keys.end) continue;
        found.n++;
        if (keys.start < found.keys.start) found.keys.start = keys.start;
        if (keys.end > found.keys.end) found.keys.end = keys.end;
    }
    return found;
}

/* Attention of the block's queries of one KV head to a chunk. */
static void attend_head(const attend_block *block, uint32_t chunk, uint32_t tier, uint32_t kv_head,
                        chunk_rows *const found[N_TENSORS]) {
    const attend_op *a = block->a;
    attend_batch batch = {.how = &a->how, .found = found, .first = chunk * CHUNK_KEYS};
    for (uint32_t row = block->first_row; row < block->end_row; row++) {
        const cam_range keys = seen_in_tier(a, row, chunk, tier);
        if (keys.start == keys.end) continue;
        const uint32_t self = a->seen(a, row).self;
        for (uint32_t head = kv_head * a->group; head < (kv_head + 1) * a->group; head++)
            add_query(&batch, keys, (attend_query){query_of(block, row, head), total_of(block, row, head),
                                                   self, head});
    }
    flush_batch(&batch);
}

/* Keys of the next chunk to prefetch: for a block of one row, which reads each key once; else none. */
static cam_range seen_next(const attend_block *block, uint32_t chunk, uint32_t tier, cam_range kv_heads) {
    if (block->end_row > block->first_row + 1 || kv_heads.start == kv_heads.end) return (cam_range){0, 0};
    return seen_in_tier(block->a, block->first_row, chunk + 1, tier);
}

/* Row addresses of one tensor: `keys` of a chunk, and rows of the next chunk to prefetch for its KV heads. */
static void find_chunk(key_place place, uint32_t chunk, cam_range keys, cam_range ahead, cam_range next_heads,
                       chunk_rows *found) {
    const uint32_t first = chunk * CHUNK_KEYS;
    const uint64_t at = codec_row_bytes(place.type, next_heads.start * place.head_cols);
    const uint64_t end = codec_row_bytes(place.type, next_heads.end * place.head_cols);
    found->type = place.type;
    find_rows(place, first, keys.start, keys.end, found->rows);
    find_rows(place, first + CHUNK_KEYS, ahead.start, ahead.end, found->ahead);
    found->ahead_at = (uint32_t)at;
    found->ahead_lines = (uint32_t)(whole_lines(end - at) / CACHE_LINE);
}

/* Reads a byte of each cache line. Prefetch instructions would not do: a processor drops prefetches beyond
 * some two dozen outstanding lines (135M model, 104 keys: 15.5 us per layer with prefetch, 10 us with
 * reads). */
static void warm(const uint8_t *at, uint64_t n_bytes) {
    for (uint64_t i = 0; i < n_bytes; i += CACHE_LINE) (void)*(const volatile uint8_t *)(at + i);
}

/* Loads the keys and values of a range of KV heads into the cache, for a chunk not prefetched before. */
static void warm_chunk(const attend_block *block, uint32_t chunk, cam_range kv_heads) {
    const attend_op *a = block->a;
    for (uint32_t i = 0; i < N_TIERS * N_TENSORS; i++) {
        const cam_range keys = seen_in_tier(a, block->first_row, chunk, i / N_TENSORS);
        if (keys.start == keys.end) continue;
        const key_place place = a->place(a, block->first_row, i / N_TENSORS, i % N_TENSORS);
        const uint64_t first = codec_row_bytes(place.type, kv_heads.start * place.head_cols);
        const uint64_t end = codec_row_bytes(place.type, kv_heads.end * place.head_cols);
        const uint8_t *rows[CHUNK_KEYS];
        find_rows(place, chunk * CHUNK_KEYS, keys.start, keys.end, rows);
        for (uint32_t j = keys.start; j < keys.end; j++) warm(rows[j] + first, end - first);
    }
}

/* Attention of the block's rows to a chunk, for a range of KV heads. Each KV head prefetches its part of the
 * next chunk, which the block reads for `next_heads`. */
static void attend_chunk(const attend_block *block, uint32_t chunk, cam_range kv_heads,
                         cam_range next_heads) {
    const attend_op *a = block->a;
    const uint32_t n_heads = kv_heads.end - kv_heads.start;
    for (uint32_t tier = 0; tier < N_TIERS && kv_heads.start < kv_heads.end; tier++) {
        const rows_seeing seeing = find_seeing(block, chunk, tier);
        if (!seeing.n) continue;
        const cam_range ahead = seen_next(block, chunk, tier, next_heads);
        found_chunk here;
        chunk_rows *found[N_TENSORS];
        uint32_t head_cols[N_TENSORS];
        for (uint32_t i = 0; i < N_TENSORS; i++) {
            const key_place place = a->place(a, block->first_row, tier, i);
            head_cols[i] = place.head_cols;
            find_chunk(place, chunk, seeing.keys, ahead, next_heads, &here.rows[i]);
        }
        for (uint32_t kv_head = kv_heads.start; kv_head < kv_heads.end; kv_head++) {
            const cam_range own = cut_range(ahead, kv_head - kv_heads.start, n_heads);
            for (uint32_t i = 0; i < N_TENSORS; i++)
                turn_to(&here.rows[i], kv_head * head_cols[i], seeing.keys.end - seeing.keys.start, own);
            find_head(block, &here, seeing.keys, seeing.n * a->group, found);
            attend_head(block, chunk, tier, kv_head, found);
        }
    }
}

/* Writes a query's result; zeros if the query sees no key. */
static void finish_query(const attend_block *block, uint32_t row, uint32_t head) {
    const attend_op *a = block->a;
    const keys_seen seen = a->seen(a, row);
    float *y = row_of(a->y, row) + (uint64_t)head * a->v_dim;
    if (seen.start < seen.end)
        finish_total(&a->how, total_of(block, row, head), a->sinks ? a->sinks + head : NULL, y, a->v_dim);
    else memset(y, 0, a->v_dim * sizeof(float));
}

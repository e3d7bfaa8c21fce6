/* Split of attention among the threads, by the number of keys to read.
 *
 * The work is laid out on one line, in keys: block of rows by block of rows, KV head by KV head. A thread
 * computes the units of work that begin in its part of the line. A block of one row may be cut between any
 * two chunks: the thread that owns the first chunk merges its own chunks as it computes them; other threads
 * store one partial result per chunk, and after all threads have met, the first thread merges those in
 * order. */
#include "attend_rows.h"

enum { MOST_BLOCK_ROWS = 32, BLOCK_QUERIES = 64, BLOCKS_A_THREAD = 4 };

typedef struct {
    const attend_op *a;
    attend_block block;
    float *parts;                 /* [n_threads - 1, most_chunks, n_heads, total]; thread 0 stores none */
    uint32_t thread, n_threads;
    uint64_t line, low, high;     /* length of the line, and this thread's part [low, high) */
    uint32_t open_row;            /* row that later threads continue */
    uint64_t open_at;             /* start of that row on the line; `line` if there is no such row */
} attend_worker;

INLINE uint32_t most_block_rows(uint32_t group) {
    const uint32_t most = BLOCK_QUERIES / group;
    return most > MOST_BLOCK_ROWS ? MOST_BLOCK_ROWS : most ? most : 1;
}

/* Rows of a block: fewer than the maximum if threads would be idle otherwise. */
static uint32_t block_rows(const attend_op *a) {
    const uint32_t most = most_block_rows(a->group), n = n_rows(a->run, a->q);
    const uint32_t even = n * a->n_kv_heads / (BLOCKS_A_THREAD * a->run->n_threads);
    return even > most ? most : even ? even : 1;
}

/* End of the block that begins with this row; a block has rows of one sequence. */
static uint32_t block_end(const attend_op *a, uint32_t row, uint32_t most) {
    const uint32_t sequence = row_words(a->run, row)[ROW_SEQUENCE], n = n_rows(a->run, a->q);
    uint32_t end = row + 1;
    while (end < n && end - row < most && row_words(a->run, end)[ROW_SEQUENCE] == sequence) end++;
    return end;
}

/* Length of a row on the line, per KV head. */
INLINE uint64_t length_of(keys_seen seen) { return seen.end > seen.start ? seen.end - seen.start : 1; }

/* Position on the line of a chunk and KV head of the row that begins at `at`. */
static uint64_t unit_at(const attend_op *a, keys_seen seen, uint64_t at, uint32_t chunk, uint32_t kv_head) {
    const uint64_t end = seen.start + length_of(seen), first = (uint64_t)chunk * CHUNK_KEYS;
    const uint64_t from = first > seen.start ? first : seen.start;
    const uint64_t to = first + CHUNK_KEYS < end ? first + CHUNK_KEYS : end;
    return at + (from - seen.start) * a->n_kv_heads + kv_head * (to - from);
}

/* KV heads whose unit of this chunk begins in [low, high) of the line. */
static cam_range heads_between(const attend_op *a, keys_seen seen, uint64_t at, uint32_t chunk, uint64_t low,
                               uint64_t high) {
    cam_range found = {0, 0};
    while (found.start < a->n_kv_heads && unit_at(a, seen, at, chunk, found.start) < low) found.start++;
    for (found.end = found.start; found.end < a->n_kv_heads; found.end++)
        if (unit_at(a, seen, at, chunk, found.end) >= high) break;
    return found;
}

/* A thread's partial results of one chunk: totals of all heads. */
static float *part_of(const attend_worker *w, uint32_t thread, uint32_t chunk) {
    const uint64_t each = (uint64_t)w->a->how.n_heads * total_floats(&w->a->how);
    return w->parts + ((uint64_t)(thread - 1) * w->a->most_chunks + chunk) * each;
}

/* Computes and stores the partial result of a chunk whose row another thread owns. */
static void keep_part(const attend_worker *w, uint32_t chunk, uint32_t number, cam_range kv_heads,
                      cam_range next_heads) {
    const attend_op *a = w->a;
    attend_block block = w->block;
    if (kv_heads.start >= kv_heads.end) return;
    block.totals = part_of(w, w->thread, number);
    for (uint32_t head = kv_heads.start * a->group; head < kv_heads.end * a->group; head++)
        clear_total(&a->how, total_of(&block, block.first_row, head));
    attend_chunk(&block, chunk, kv_heads, next_heads);
}

/* True if all units of a KV head belong to this thread, which owns the first. */
static uint32_t is_whole_head(const attend_worker *w, keys_seen seen, uint64_t at, uint32_t kv_head) {
    return unit_at(w->a, seen, at, chunks_of(seen).end - 1, kv_head) < w->high;
}

static void finish_kv_head(const attend_block *block, uint32_t row, uint32_t kv_head) {
    for (uint32_t i = 0; i < block->a->group; i++) finish_query(block, row, kv_head * block->a->group + i);
}

/* Computes this thread's units of one row, which begins at `at` on the line. */
static void attend_cut_row(attend_worker *w, uint32_t row, uint64_t at) {
    const attend_op *a = w->a;
    const keys_seen seen = a->seen(a, row);
    const cam_range chunks = chunks_of(seen);
    const cam_range own = heads_between(a, seen, at, chunks.start, w->low, w->high);
    cam_range here = own, next = {0, 0};
    uint32_t is_warm = 0;
    begin_block(&w->block, row, row + 1, (cam_range){0, a->n_kv_heads});
    for (uint32_t chunk = chunks.start; chunk < chunks.end; chunk++, here = next) {
        if (chunk + 1 < chunks.end) next = heads_between(a, seen, at, chunk + 1, w->low, w->high);
        if (!is_warm && here.start < here.end) warm_chunk(&w->block, chunk, here), is_warm = 1;
        keep_part(w, chunk, chunk - chunks.start, range_before(here, own.start),
                  range_before(next, own.start));
        attend_chunk(&w->block, chunk, range_from(here, own.start), range_from(next, own.start));
    }
    for (uint32_t kv_head = own.start; kv_head < own.end; kv_head++) {
        if (is_whole_head(w, seen, at, kv_head)) finish_kv_head(&w->block, row, kv_head);
        else w->open_row = row, w->open_at = at;
    }
}

/* Computes a block of several rows, one KV head at a time. */
static void attend_whole_rows(attend_worker *w, uint32_t row, uint32_t end, uint64_t at, uint64_t length) {
    for (uint32_t kv_head = 0; kv_head < w->a->n_kv_heads; kv_head++, at += length) {
        if (at < w->low || at >= w->high) continue;
        cam_range chunks = {UINT32_MAX, 0};
        for (uint32_t r = row; r < end; r++) {
            const cam_range own = chunks_of(w->a->seen(w->a, r));
            if (own.start < chunks.start) chunks.start = own.start;
            if (own.end > chunks.end) chunks.end = own.end;
        }
        const cam_range this = {kv_head, kv_head + 1};
        begin_block(&w->block, row, end, this);
        for (uint32_t chunk = chunks.start; chunk < chunks.end; chunk++)
            attend_chunk(&w->block, chunk, this, this);
        for (uint32_t r = row; r < end; r++) finish_kv_head(&w->block, r, kv_head);
    }
}

/* Merges the partial results of later threads into a KV head of the open row, chunk by chunk. */
static void merge_parts(const attend_worker *w, keys_seen seen, uint32_t kv_head) {
    const attend_op *a = w->a;
    const cam_range chunks = chunks_of(seen);
    uint32_t thread = w->thread;
    for (uint32_t chunk = chunks.start; chunk < chunks.end; chunk++) {
        const uint64_t at = unit_at(a, seen, w->open_at, chunk, kv_head);
        while (at >= w->line * (thread + 1) / w->n_threads) thread++;
        if (thread == w->thread) continue;
        attend_block part = w->block;
        part.totals = part_of(w, thread, chunk - chunks.start);
        for (uint32_t head = kv_head * a->group; head < (kv_head + 1) * a->group; head++)
            merge_totals(&a->how, total_of(&w->block, w->open_row, head), total_of(&part, w->open_row, head));
    }
}

static void finish_open_row(attend_worker *w) {
    const keys_seen seen = w->a->seen(w->a, w->open_row);
    const uint32_t first = chunks_of(seen).start;
    const cam_range own = heads_between(w->a, seen, w->open_at, first, w->low, w->high);
    for (uint32_t kv_head = own.start; kv_head < own.end; kv_head++) {
        if (is_whole_head(w, seen, w->open_at, kv_head)) continue;
        merge_parts(w, seen, kv_head);
        finish_kv_head(&w->block, w->open_row, kv_head);
    }
}

/* Walks the line and computes the worker's part. Returns the line's length; `w` NULL only measures. */
static uint64_t walk_line(const attend_op *a, attend_worker *w) {
    const uint32_t most = block_rows(a), n = n_rows(a->run, a->q);
    uint64_t at = 0;
    for (uint32_t row = 0, end; row < n; row = end) {
        uint64_t length = 0;
        end = block_end(a, row, most);
        for (uint32_t r = row; r < end; r++) length += length_of(a->seen(a, r));
        const uint64_t after = at + length * a->n_kv_heads;
        if (w && after > w->low && at < w->high) {
            if (a->most_chunks && end == row + 1) attend_cut_row(w, row, at);
            else attend_whole_rows(w, row, end, at, length);
        }
        at = after;
    }
    return at;
}

/* Sizes of a thread's memory, in floats. */
typedef struct { uint64_t queries, totals, tiles[N_TENSORS], decoded, all; } attend_memory;

static attend_memory memory_of(const attend_op *a) {
    enum { MOST_BLOCK_VALUES = 32 };   /* largest quant block of the state types */
    const uint32_t rows = most_block_rows(a->group) * a->group;
    const uint64_t slots = rows > a->how.n_heads ? rows : a->how.n_heads;
    const uint32_t dim = a->q_dim > a->v_dim ? a->q_dim : a->v_dim;
    attend_memory m = {
        .queries = slots * query_floats(&a->how),
        .totals = slots * total_floats(&a->how),
        .tiles = {CHUNK_KEYS * a->how.k_vectors * LANES, CHUNK_KEYS * a->how.v_vectors * LANES},
        .decoded = dim + 2 * MOST_BLOCK_VALUES,
    };
    m.all = m.queries + m.totals + m.tiles[KEYS] + m.tiles[VALUES] + m.decoded;
    m.all = whole_lines(m.all * sizeof(float)) / sizeof(float);
    return m;
}

/* Scratch bytes of all threads. */
static uint64_t attend_bytes(const attend_op *a, uint32_t n_threads) {
    const uint64_t part = (uint64_t)a->most_chunks * a->how.n_heads * total_floats(&a->how);
    const uint64_t floats = n_threads * memory_of(a).all + (n_threads - 1) * part;
    return whole_lines(floats * sizeof(float));
}

static attend_worker new_worker(const attend_op *a, uint32_t thread) {
    const attend_memory m = memory_of(a);
    const uint32_t n = a->run->n_threads;
    float *all = AT(float, a->run->program->scratch), *own = all + thread * m.all;
    float *totals = own + m.queries, *tiles = totals + m.totals, *values = tiles + m.tiles[KEYS];
    const uint64_t line = walk_line(a, NULL);
    return (attend_worker){
        .a = a,
        .block = {.a = a, .queries = own, .totals = totals, .tiles = {tiles, values},
                  .decoded = values + m.tiles[VALUES]},
        .parts = all + n * m.all,
        .thread = thread, .n_threads = n,
        .line = line, .low = line * thread / n, .high = line * (thread + 1) / n,
        .open_at = line,
    };
}

/* Sets the fields that follow from the number of query heads and the widths of q and y. */
static void set_heads(attend_op *a, uint32_t n_heads, double scale) {
    a->group = n_heads / a->n_kv_heads;
    a->q_dim = a->q->cols / n_heads, a->v_dim = a->y->cols / n_heads;
    a->how.k_vectors = (a->q_dim + LANES - 1) / LANES, a->how.v_vectors = (a->v_dim + LANES - 1) / LANES;
    a->how.n_heads = n_heads, a->how.scale = (float)scale;
}

/* Sets the bias; the row of distance 0 is row -low. */
static void set_bias(attend_how *how, const cam_weight *bias, int32_t sign, int32_t low, int32_t high) {
    how->bias = AT(const float, bias->at);
    how->bias_sign = sign, how->bias_low = low, how->bias_high = high, how->bias_row = -low;
}

/* Attention of all rows of the step; each thread calls this function. */
static void attend_all(const attend_op *a, uint32_t thread) {
    attend_worker worker = new_worker(a, thread);
    walk_line(a, &worker);
    cam_meet(a->run, thread);
    if (worker.open_at < worker.line) finish_open_row(&worker);
}

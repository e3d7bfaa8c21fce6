/* Keys that the rows of an op see, and the addresses of the keys. */
#pragma once
#include "attend.h"
#include "run.h"

enum { KEYS, VALUES, N_TENSORS };
enum { STORE, TAIL, N_TIERS };

/* One tensor of keys or values. Row r of a sequence is row r % unit_rows of unit table[r / unit_rows];
 * without a table, it is row r from `at` on. */
typedef struct {
    uint64_t at, row_bytes;
    const uint32_t *table;
    uint32_t unit_rows, type, head_cols;   /* head_cols: stride between the heads of a row */
} key_place;

/* Keys [start, end) that a row sees. Keys before `border` are read from the store, later keys from the tail,
 * which holds keys from `tail_start` on. The row itself is key `self`. */
typedef struct { uint32_t start, end, border, tail_start, self; } keys_seen;

typedef struct attend_op attend_op;
struct attend_op {
    const cam_op *op;
    const cam_run *run;
    const cam_view *q, *y;
    attend_how how;
    const float *sinks;
    uint32_t n_kv_heads, group;            /* group: query heads per KV head */
    uint32_t q_dim, v_dim;                 /* per head */
    uint32_t most_chunks;                  /* of a row that threads may share; 0: rows are not shared */
    keys_seen (*seen)(const attend_op *a, uint32_t row);
    key_place (*place)(const attend_op *a, uint32_t row, uint32_t tier, uint32_t tensor);
};

/* Range of a row's chunks, at least one. */
INLINE cam_range chunks_of(keys_seen seen) {
    uint32_t start = seen.start / CHUNK_KEYS, end = (seen.end + CHUNK_KEYS - 1) / CHUNK_KEYS;
    return (cam_range){start, end > start ? end : start + 1};
}

/* Tier of a chunk; `border` is always a chunk border. */
INLINE uint32_t tier_of(keys_seen seen, uint32_t chunk) { return chunk * CHUNK_KEYS >= seen.border; }
/* Keys of a chunk that a row sees, relative to the chunk's first key. */
INLINE cam_range seen_of_chunk(keys_seen seen, uint32_t chunk) {
    const uint32_t first = chunk * CHUNK_KEYS;
    uint32_t start = seen.start > first ? seen.start : first;
    if (tier_of(seen, chunk) == TAIL && seen.tail_start > start) start = seen.tail_start;
    uint32_t end = seen.end < first + CHUNK_KEYS ? seen.end : first + CHUNK_KEYS;
    return start < end ? (cam_range){start - first, end - first} : (cam_range){0, 0};
}

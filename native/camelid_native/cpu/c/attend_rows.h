/* Which keys the rows of an op see, and where they lie. */
#pragma once
#include "attend.h"
#include "run.h"

enum { KEYS, VALUES, N_TENSORS };
enum { STORE, TAIL, N_TIERS };

/* One tensor of keys or values. Row r of a sequence is row r % unit_rows of unit table[r / unit_rows]; where
 * there is no table, it is row r from `at` on. */
typedef struct {
    uint64_t at, row_bytes;
    const uint32_t *table;
    uint32_t unit_rows, type, head_cols;   /* head_cols: from one head of a row to the next */
} key_place;

/* Keys [start, end) of a row's sequence: those before `border` are read in the store, others in the tail,
 * which holds those from `tail_start` on. The row itself is key `self`. */
typedef struct { uint32_t start, end, border, tail_start, self; } keys_seen;

typedef struct attend_op attend_op;
struct attend_op {
    const cam_op *op;
    const cam_run *run;
    const cam_view *q, *y;
    attend_how how;
    const float *sinks;
    uint32_t n_kv_heads, group;            /* group: query heads of one kv head */
    uint32_t q_dim, v_dim;                 /* of a head */
    uint32_t most_chunks;                  /* of a row whose work may be cut; 0: none is */
    keys_seen (*seen)(const attend_op *a, uint32_t row);
    key_place (*place)(const attend_op *a, uint32_t row, uint32_t tier, uint32_t tensor);
};

/* First chunk of a row, and the end of its chunks; one at least. */
INLINE cam_range chunks_of(keys_seen seen) {
    uint32_t start = seen.start / CHUNK_KEYS, end = (seen.end + CHUNK_KEYS - 1) / CHUNK_KEYS;
    return (cam_range){start, end > start ? end : start + 1};
}

/* The tier of a chunk, whose borders are also the border's; and what a row sees of it, from the chunk's first
 * key on. */
INLINE uint32_t tier_of(keys_seen seen, uint32_t chunk) { return chunk * CHUNK_KEYS >= seen.border; }
INLINE cam_range seen_of_chunk(keys_seen seen, uint32_t chunk) {
    const uint32_t first = chunk * CHUNK_KEYS;
    uint32_t start = seen.start > first ? seen.start : first;
    if (tier_of(seen, chunk) == TAIL && seen.tail_start > start) start = seen.tail_start;
    uint32_t end = seen.end < first + CHUNK_KEYS ? seen.end : first + CHUNK_KEYS;
    return start < end ? (cam_range){start - first, end - first} : (cam_range){0, 0};
}

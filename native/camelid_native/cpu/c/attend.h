/* What attention works on: queries, and keys and values a chunk at a time.
 *
 * Chunks have fixed borders, whatever a query sees of them. Each gives a partial result by itself, which is
 * then merged into the total of the chunks before. So a query's bits depend on nothing but its own keys. */
#pragma once
#include "simd.h"

enum { CHUNK_KEYS = 64, KEY_VECTORS = CHUNK_KEYS / LANES };
enum { MOST_QUERIES = 4 };   /* that share each read of a key */

/* Rows of keys or of values of a chunk, in one type; a head begins at value `column` of each. `ahead` are
 * those of the chunk after it: while a head is computed, of those from `ahead_start` to `ahead_end` so many
 * cache lines from byte `ahead_at` on are asked for, `ahead_pace` of them with each key. */
typedef struct {
    const uint8_t *rows[CHUNK_KEYS], *ahead[CHUNK_KEYS];
    uint32_t type, column, ahead_start, ahead_end, ahead_at, ahead_lines, ahead_pace;
} chunk_rows;

/* What all queries of an op have in common. */
typedef struct {
    uint32_t k_vectors, v_vectors;  /* of a head, the last filled up with zeros */
    float scale, softcap;           /* softcap 0: none */
    const float *bias;              /* [n, n_heads] by distance; NULL: none */
    uint32_t n_heads;
    /* The row of it: bias_row + sign * (key - query's row), between low and high. */
    int32_t bias_sign, bias_low, bias_high, bias_row;
} attend_how;

/* One head of one row. `total` holds v_vectors of weighted values, then one of the weights' sums and one of
 * the largest score in every lane. */
typedef struct {
    const float *q;
    float *total;
    uint32_t row, head;
} attend_query;

/* Floats of a total. */
INLINE uint32_t total_floats(const attend_how *how) { return (how->v_vectors + 2) * LANES; }

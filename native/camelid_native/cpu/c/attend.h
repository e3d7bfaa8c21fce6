/* Data of attention: queries, and keys and values of one chunk.
 *
 * Chunks have fixed borders, independent of the keys that a query sees. Each chunk gives a partial result,
 * which is merged into the total of the chunks before. So a query's bits depend on its own keys only. */
#pragma once
#include "simd.h"

enum { CHUNK_KEYS = 64, KEY_VECTORS = CHUNK_KEYS / LANES };
enum { MOST_QUERIES = 4 };   /* queries that share each read of a key */

/* Rows of the keys or values of a chunk; the head begins at value `column` of each row. `ahead` are the rows
 * of the next chunk: while a head is computed, `ahead_lines` cache lines from byte `ahead_at` of each row in
 * [ahead_start, ahead_end) are prefetched, `ahead_pace` lines per key. */
typedef struct {
    const uint8_t *rows[CHUNK_KEYS], *ahead[CHUNK_KEYS];
    uint32_t type, column, ahead_start, ahead_end, ahead_at, ahead_lines, ahead_pace;
} chunk_rows;

/* Parameters shared by all queries of an op. */
typedef struct {
    uint32_t k_vectors, v_vectors;  /* vectors of a head, the last padded with zeros */
    float scale, softcap;           /* softcap 0: none */
    const float *bias;              /* [n, n_heads] by distance; NULL: none */
    uint32_t n_heads;
    /* Row of the bias: bias_row + sign * (key - query's row), the distance clamped to [low, high]. */
    int32_t bias_sign, bias_low, bias_high, bias_row;
} attend_how;

/* One head of one row. `total` is v_vectors vectors of weighted values, a vector of weight sums, and a vector
 * with the largest score in every lane. */
typedef struct {
    const float *q;
    float *total;
    uint32_t row, head;
} attend_query;

/* Number of floats in a total. */
INLINE uint32_t total_floats(const attend_how *how) { return (how->v_vectors + 2) * LANES; }

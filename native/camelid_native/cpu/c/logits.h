/* Layout of logits for the sampling kernels: a row is split into chunks of ids, and chunks into blocks that
 * threads share. Also integer keys in the order of floats, and the scratch of chunks and blocks. */
#pragma once
#include "run.h"

enum { CHUNK_IDS = 64, CHUNK_VECTORS = CHUNK_IDS / LANES };
enum { BLOCK_CHUNKS = 32, BLOCK_IDS = BLOCK_CHUNKS * CHUNK_IDS };
enum { KEY_OF_NAN = INT32_MIN, KEY_OF_INFINITY = 0x7F800000 };

INLINE uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
INLINE float float_of_word(uint32_t word) { float x; memcpy(&x, &word, sizeof x); return x; }
INLINE uint32_t word_of_float(float x) { uint32_t word; memcpy(&word, &x, sizeof word); return word; }

/* Keys: integers in the order of floats; NaN is below all. */
INLINE vi vi_keys(vf x) { return vi_order(x, KEY_OF_NAN); }
INLINE int32_t key_of(float x) {
    int32_t bits = (int32_t)word_of_float(x + 0.0f);
    return x == x ? bits ^ ((bits >> 31) & INT32_MAX) : KEY_OF_NAN;
}
INLINE float value_of_key(int32_t key) { return float_of_word((uint32_t)(key ^ ((key >> 31) & INT32_MAX))); }
INLINE int is_finite_key(int32_t key) { return key > key_of(-__builtin_inff()) && key < KEY_OF_INFINITY; }

INLINE vi vi_max(vi a, vi b) { vi more = a > b; return (a & more) | (b & ~more); }
INLINE int32_t vi_top(vi v) {
    int32_t top = v[0];
    for (int i = 1; i < LANES; i++) top = v[i] > top ? v[i] : top;
    return top;
}

typedef struct {
    const float *row;
    uint32_t vocab, n_chunks, n_blocks;
    int32_t *tops;   /* [n_chunks]: highest key of each chunk */
} logits;

/* Floats of a chunk: in place, or for a partial last chunk a copy padded with `padding`. */
INLINE const float *chunk_at(const logits *l, uint32_t chunk, float padding, float *copy) {
    uint32_t start = chunk * CHUNK_IDS;
    if (l->vocab - start >= CHUNK_IDS) return l->row + start;
    for (uint32_t i = 0; i < CHUNK_IDS; i++) copy[i] = start + i < l->vocab ? l->row[start + i] : padding;
    return copy;
}
/* Range of a block's chunks. */
INLINE cam_range block_chunks(const logits *l, uint32_t block) {
    return (cam_range){block * BLOCK_CHUNKS, least((block + 1) * BLOCK_CHUNKS, l->n_chunks)};
}

typedef struct { int32_t lowest, highest; } extremes;

/* Computes the tops of a block's chunks. Returns the block's lowest and highest key. */
static extremes find_tops(const logits *l, uint32_t block) {
    cam_range chunks = block_chunks(l, block);
    float copy[CHUNK_IDS];
    vi low = vi_set(INT32_MAX);
    int32_t highest = KEY_OF_NAN;
    for (uint32_t c = chunks.start; c < chunks.end; c++) {
        const float *x = chunk_at(l, c, l->row[c * CHUNK_IDS], copy);
        vi top = vi_set(KEY_OF_NAN);
        for (int i = 0; i < CHUNK_VECTORS; i++) {
            vi key = vi_keys(vf_load(x + i * LANES));
            top = vi_max(top, key);
            low = ~vi_max(~low, ~key);   /* ~ reverses the order */
        }
        l->tops[c] = vi_top(top);
        highest = l->tops[c] > highest ? l->tops[c] : highest;
    }
    return (extremes){~vi_top(~low), highest};
}

/* Scratch of a sampling op: a record per output, a record per block, the tops, places for each thread. */
typedef struct {
    const cam_view *view;
    uint32_t n_outputs, n_chunks, n_blocks;
    uint64_t outputs_at, blocks_at, tops_at, places_at;
} workspace;


static workspace lay_out(const cam_view *view, uint64_t scratch, uint32_t n_outputs, uint64_t output_bytes,
                         uint64_t block_bytes) {
    workspace w = {.view = view, .n_outputs = n_outputs, .outputs_at = scratch};
    w.n_chunks = (view->cols + CHUNK_IDS - 1) / CHUNK_IDS;
    w.n_blocks = (w.n_chunks + BLOCK_CHUNKS - 1) / BLOCK_CHUNKS;
    w.blocks_at = w.outputs_at + whole_lines(n_outputs * output_bytes);
    w.tops_at = w.blocks_at + whole_lines(n_outputs * w.n_blocks * block_bytes);
    w.places_at = w.tops_at + whole_lines((uint64_t)n_outputs * w.n_chunks * sizeof(int32_t));
    return w;
}

INLINE logits logits_of(const workspace *w, uint32_t output) {
    int32_t *tops = AT(int32_t, w->tops_at) + (uint64_t)output * w->n_chunks;
    return (logits){row_of(w->view, output), w->view->cols, w->n_chunks, w->n_blocks, tops};
}

/* What a variant of the kernels is to the rest of the library: one table of functions. */
#pragma once
#include "run.h"

typedef struct {
    const char *name;
    uint32_t lanes;
    const char *(*op_name)(uint32_t kind);   /* NULL past the last */
    /* Runs the program's ops from the first on; called by each thread of the run. */
    void (*execute)(cam_run *run, uint32_t thread, uint64_t first);
    /* Bytes of scratch that the program wants with so many threads. */
    uint64_t (*scratch_bytes)(const cam_program *program, uint32_t n_threads);
    /* Values of whole blocks, and blocks of values; 1 where the type has no codec for it. */
    uint32_t (*decode)(uint32_t type, const uint8_t *blocks, float *values, uint64_t n);
    uint32_t (*encode)(uint32_t type, const float *values, uint8_t *blocks, uint64_t n);
    /* Bytes of [rows, cols] as panels; 0 where the type has none. */
    uint64_t (*panel_bytes)(uint32_t type, uint32_t rows, uint32_t cols);
    /* Panels `first` to `end` of a matrix, every so many places: p goes to p * every. order[i]: the stored
     * row that is row i (NULL: its own). */
    void (*pack)(uint32_t type, const uint8_t *stored, const uint32_t *order, uint32_t rows, uint32_t cols,
                 uint32_t first, uint32_t end, uint32_t every, uint8_t *panels);
    /* One row of a matrix in panels, as values. */
    void (*unpack_row)(uint32_t type, const uint8_t *panels, uint32_t rows, uint32_t cols, uint32_t row,
                       float *values);
    /* Makes n * lanes * 32 products of int8; see peak.c. */
    uint32_t (*multiply)(uint32_t n);
} cam_variant;

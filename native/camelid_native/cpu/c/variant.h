/* Function table of a variant of the kernels. */
#pragma once
#include "run.h"

typedef struct {
    const char *name;
    uint32_t lanes;
    const char *(*op_name)(uint32_t kind);   /* NULL past the last */
    /* Runs the program's ops from op `first` on; each thread of the run calls it. */
    void (*execute)(cam_run *run, uint32_t thread, uint64_t first);
    /* Scratch bytes of a program with n_threads threads. */
    uint64_t (*scratch_bytes)(const cam_program *program, uint32_t n_threads);
    /* Decode and encode n values (whole blocks); return 1 if the type has no such codec. */
    uint32_t (*decode)(uint32_t type, const uint8_t *blocks, float *values, uint64_t n);
    uint32_t (*encode)(uint32_t type, const float *values, uint8_t *blocks, uint64_t n);
    /* Encodes n values, whole rows of `cols`, with the least error weighted by importance [cols] (NULL: 1);
     * returns 1 if the type has no quantizer. NULL in WebAssembly. */
    uint32_t (*quantize)(uint32_t type, const float *values, const float *importance, uint32_t cols,
                         uint64_t n, uint8_t *blocks);
    /* Bytes of [rows, cols] in panels; 0 if the type has no panels. */
    uint64_t (*panel_bytes)(uint32_t type, uint32_t rows, uint32_t cols);
    /* Packs panels [first, end) of a matrix; panel p is written to place p * every. order[i] is the stored
     * row of row i; NULL keeps the stored order. */
    void (*pack)(uint32_t type, const uint8_t *stored, const uint32_t *order, uint32_t rows, uint32_t cols,
                 uint32_t first, uint32_t end, uint32_t every, uint8_t *panels);
    /* Decodes one row of a matrix in panels. */
    void (*unpack_row)(uint32_t type, const uint8_t *panels, uint32_t rows, uint32_t cols, uint32_t row,
                       float *values);
    /* Computes n * lanes * 32 int8 products; see peak.c. */
    uint32_t (*multiply)(uint32_t n);
} cam_variant;

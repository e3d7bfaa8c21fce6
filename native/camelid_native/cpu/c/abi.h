/* The records that a host fills and the kernels read: the same bytes on every machine, 64-bit or wasm32.
 *
 * An op's operands stand in the order of its row in core/camelid/plan/op_rows*.py: views, weights and states
 * each by themselves, an absent one all zeros; attributes as doubles, words as their number in words.h.
 * `cpu_records.py` is the other side of this file, and a test compares the two. */
#pragma once
#include <stdint.h>

#define CAM_ABI 4
#define CAM_MOST_RUNS 8  /* one computes, the others wait behind it */
#define CAM_MOST_THREADS 64  /* of a WASM module */

/* An address in a field of 64 bits, whatever the size of a pointer. */
#define AT(type, address) ((type *)(uintptr_t)(address))

enum { ROWS_T, ROWS_S, ROWS_O };  /* what a view has a row for: token rows, sequences, outputs */
enum { MAX_VIEWS = 6, MAX_WEIGHTS = 3, MAX_STATES = 2, MAX_ATTRS = 6, STATE_TENSORS = 2 };

typedef struct {
    uint64_t at;              /* float32 [rows, cols], row r at `at + 4 * stride * r`; 0: absent */
    uint32_t cols, stride, rows, reserved;
} cam_view;

/* How a weight lies in memory. */
enum {
    FORM_F32,    /* float32 row after row */
    FORM_ROWS,   /* rows in blocks of their type, as in the file */
    FORM_PANELS, /* panels of 16 rows, interleaved for dot products; panels.h has a layout for each type */
    FORM_GATED,  /* of the first half of the rows, a gate's, and the second a panel each in turns */
};

typedef struct {
    uint64_t at;              /* 0: absent */
    uint64_t stack_bytes;     /* from one matrix of a stack to the next */
    uint32_t form;            /* a FORM_: the one that the op's kernel reads */
    uint32_t type;            /* GGUF's id of the type; of a panel, that of the tensor it was made from */
    uint32_t stack, rows, cols, reserved;  /* [stack, rows, cols]; a vector is one row */
} cam_weight;

typedef struct {
    uint64_t at[STATE_TENSORS];      /* rows of this layer: [units, unit_rows, row_bytes]; 0: absent */
    uint64_t table;                  /* u32 [table_rows, table_cols]: units by page; 0: none */
    uint32_t row_bytes[STATE_TENSORS], cols[STATE_TENSORS];
    uint32_t group;                  /* its place in a sequence's words of the step */
    uint32_t type;                   /* GGUF's id of the stored type; of ids, 26 (i32) */
    uint32_t unit_rows, table_cols;
    uint32_t n_layers, n_units;      /* of the group: all its layers lie in one block, one after the other */
} cam_state;

typedef struct {
    uint32_t kind;                   /* the number that cam_op_name gives the op's name for */
    uint32_t flags;                  /* FLAG_ */
    cam_view views[MAX_VIEWS];
    cam_weight weights[MAX_WEIGHTS];
    cam_state states[MAX_STATES];
    double attrs[MAX_ATTRS];
} cam_op;

/* The quantized rows of the last linear's x still stand in scratch, and this op's x is that x. */
enum { FLAG_SAME_X = 1 };

typedef struct {
    uint64_t ops, n_ops;
    uint64_t scratch, scratch_bytes; /* shared by the threads of a run; 64-byte aligned */
    /* Word offsets of the step's sections (plan/step.py), and words of a row and of a sequence. */
    uint32_t rows_at, row_words, sequences_at, sequence_words, outputs_at, sampling_at, biases_at;
    uint32_t updates_at, copies_at;
    uint32_t features;               /* FEATURE_ */
    uint32_t capacity_rows, capacity_outputs;
} cam_program;

enum { FEATURE_ALL_LOGITS = 1, FEATURE_CANDIDATES = 2 };

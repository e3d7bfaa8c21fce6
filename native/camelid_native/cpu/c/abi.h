/* Records that the host fills and the kernels read, with the same layout on 64-bit machines and wasm32.
 *
 * Views, weights and states of an op are in the order of the op's row in core/camelid/plan/op_rows*.py; an
 * absent operand is all zeros. Attributes are doubles; an attribute word is its number in words.h.
 * `records.py` declares the same records in Python; a test compares both. */
#pragma once
#include <stdint.h>

#define CAM_ABI 6
#define CAM_MOST_RUNS 8  /* one running, seven queued */
#define CAM_MOST_THREADS 64  /* limit of a WASM module */

/* Pointer from a 64-bit address field; wasm32 pointers have 32 bits. */
#define AT(type, address) ((type *)(uintptr_t)(address))

enum { ROWS_T, ROWS_S, ROWS_O };  /* rows of a view: one per token row, per sequence, per output */
enum { MAX_VIEWS = 8, MAX_WEIGHTS = 3, MAX_STATES = 2, MAX_ATTRS = 6, STATE_TENSORS = 2 };

typedef struct {
    uint64_t at;              /* float32 [rows, cols], row r at `at + 4 * stride * r`; 0: absent */
    uint32_t cols, stride, rows, reserved;
} cam_view;

/* How a weight lies in memory. */
enum {
    FORM_F32,    /* float32, row by row */
    FORM_ROWS,   /* rows in blocks of their type, as in the file */
    FORM_PANELS, /* panels of 16 rows, interleaved for dot products; layouts are in panels.h */
    FORM_GATED,  /* alternating panels: one of the first half of the rows (gate), one of the second (up) */
};

typedef struct {
    uint64_t at;              /* 0: absent */
    uint64_t stack_bytes;     /* stride between the matrices of a stack */
    uint32_t form;            /* FORM_*, as the op's kernel expects */
    uint32_t type;            /* GGUF type id; of a panel, the id of its source tensor */
    uint32_t stack, rows, cols, reserved;  /* [stack, rows, cols]; a vector is one row */
} cam_weight;

typedef struct {
    uint64_t at[STATE_TENSORS];      /* rows of this layer: [units, unit_rows, row_bytes]; 0: absent */
    uint64_t table;                  /* u32 [table_rows, table_cols]: units by page; 0: none */
    uint32_t row_bytes[STATE_TENSORS], cols[STATE_TENSORS];
    uint32_t group;                  /* index in the group words of a sequence in the step */
    uint32_t type;                   /* GGUF type id of the stored values; 26 (i32) for token ids */
    uint32_t unit_rows, table_cols;
    uint32_t n_layers, n_units;      /* of the group, whose layers are contiguous */
} cam_state;

typedef struct {
    uint32_t kind;                   /* number of the op; see cam_op_name */
    uint32_t flags;                  /* FLAG_ */
    cam_view views[MAX_VIEWS];
    cam_weight weights[MAX_WEIGHTS];
    cam_state states[MAX_STATES];
    double attrs[MAX_ATTRS];
} cam_op;

/* FLAG_SAME_X: this op's x is the x of the op before, whose quantized rows are still in scratch. FLAG_JOINED: the
 * op before, or the one that computes it, computes this op too. */
enum { FLAG_SAME_X = 1, FLAG_JOINED = 2 };

typedef struct {
    uint64_t ops, n_ops;
    uint64_t scratch, scratch_bytes; /* shared by the threads of a run; 64-byte aligned */
    /* Word offsets of the step's sections (plan/step.py); words per row and per sequence. */
    uint32_t rows_at, row_words, sequences_at, sequence_words, outputs_at, sampling_at, biases_at;
    uint32_t updates_at, copies_at;
    uint32_t features;               /* FEATURE_ */
    uint32_t capacity_rows, capacity_outputs;
} cam_program;

enum { FEATURE_ALL_LOGITS = 1, FEATURE_CANDIDATES = 2 };

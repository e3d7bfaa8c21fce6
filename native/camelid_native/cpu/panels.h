/* How a matrix of each type lies in panels of 16 rows.
 *
 * A panel is 16 rows by all columns, the last one filled up with rows of zeros. Of floats it is column
 * after column, 16 values each. Of quantized types it is a run of spans: a head of `halves` float16 for each
 * row, then `span` blocks of 32 columns, each of which is
 *   codes   8 groups of 4 columns, a group being 64 bytes with row r's four at 4 * r. 4 bits: group i in the
 *           low and group i + 4 in the high halves of 64 bytes; what a code has above 4 bits follows in
 *           planes of 64 bytes: 1 bit of 8 groups, or 2 bits of 4 groups. 8 bits: signed bytes.
 *   bytes   [bytes][16] u8
 *   floats  [floats][16] float32
 * The value of a code q:
 *   halves d                   d * (q - offset)
 *   halves d m                 d * q + m
 *   halves d, bytes s t        (d * s) * (q - offset), then t for the last 16 columns; s and t signed
 *   halves d m, bytes s t      (d * s) * q - m * t
 *   floats s t                 s * q, then t * q for the last 16 columns
 *   floats s t u v             s * q + u, then t * q + v */
#pragma once
#include "simd.h"

enum { BLOCK = 32, GROUPS = 8, GROUP_BYTES = 4 * PANEL_ROWS, MAX_SPAN = 8 };

typedef struct {
    uint8_t stored;   /* bytes of a span of one row in the file; of one value, if these are floats */
    uint8_t span;     /* blocks of 32 columns under one head; 0: floats */
    uint8_t bits;     /* of a code */
    uint8_t halves, bytes, floats;
    uint8_t shift;    /* the offset is 1 << shift; 0: none */
} cam_layout;

/*    name      id stored span bits halves bytes floats shift */
#define CAM_OWN_PANELS(_)                             \
    _(q4_0,     2,  18,  1,  4,  1,  0,  0,  3)       \
    _(q4_1,     3,  20,  1,  4,  2,  0,  0,  0)       \
    _(q5_0,     6,  22,  1,  5,  1,  0,  0,  4)       \
    _(q5_1,     7,  24,  1,  5,  2,  0,  0,  0)       \
    _(q8_0,     8,  34,  1,  8,  1,  0,  0,  0)       \
    _(q2_k,    10,  84,  8,  8,  0,  0,  4,  0)       \
    _(q4_k,    12, 144,  8,  4,  2,  2,  0,  0)       \
    _(q5_k,    13, 176,  8,  5,  2,  2,  0,  0)       \
    _(q6_k,    14, 210,  8,  6,  1,  2,  0,  5)
/* Whole numbers times a scale, of whatever 16 columns share one: they all make the same panels. */
#define CAM_BYTE_PANELS(_)                            \
    _(q3_k,    11, 110,  8,  8,  0,  0,  2,  0)       \
    _(iq2_xxs, 16,  66,  8,  8,  0,  0,  2,  0)       \
    _(iq2_xs,  17,  74,  8,  8,  0,  0,  2,  0)       \
    _(iq3_xxs, 18,  98,  8,  8,  0,  0,  2,  0)       \
    _(iq1_s,   19,  50,  8,  8,  0,  0,  2,  0)       \
    _(iq4_nl,  20,  18,  1,  8,  0,  0,  2,  0)       \
    _(iq3_s,   21, 110,  8,  8,  0,  0,  2,  0)       \
    _(iq2_s,   22,  82,  8,  8,  0,  0,  2,  0)       \
    _(iq4_xs,  23, 136,  8,  8,  0,  0,  2,  0)       \
    _(iq1_m,   29,  56,  8,  8,  0,  0,  2,  0)       \
    _(tq1_0,   34,  54,  8,  8,  0,  0,  2,  0)       \
    _(tq2_0,   35,  66,  8,  8,  0,  0,  2,  0)       \
    _(mxfp4,   39,  17,  1,  8,  0,  0,  2,  0)       \
    _(nvfp4,   40,  36,  2,  8,  0,  0,  2,  0)       \
    _(q1_0,    41,  18,  4,  8,  0,  0,  2,  0)       \
    _(q2_0,    42,  18,  2,  8,  0,  0,  2,  0)
#define CAM_FLOAT_PANELS(_)                           \
    _(f32,      0,   4,  0, 32,  0,  0,  0,  0)       \
    _(f16,      1,   2,  0, 16,  0,  0,  0,  0)       \
    _(bf16,    30,   2,  0, 16,  0,  0,  0,  0)
#define CAM_CODE_PANELS(_) CAM_OWN_PANELS(_) CAM_BYTE_PANELS(_)
#define CAM_PANELS(_) CAM_CODE_PANELS(_) CAM_FLOAT_PANELS(_)

enum {
#define CAM_TYPE(name, id, ...) TYPE_##name = id,
    CAM_PANELS(CAM_TYPE)
#undef CAM_TYPE
    N_TYPES = 43
};

static const cam_layout layouts[N_TYPES] = {
#define CAM_LAYOUT(name, id, ...) [id] = {__VA_ARGS__},
    CAM_PANELS(CAM_LAYOUT)
#undef CAM_LAYOUT
};

/* The layout of a type, or NULL. */
INLINE const cam_layout *layout_of(uint32_t type) {
    return type < N_TYPES && layouts[type].stored ? &layouts[type] : NULL;
}
INLINE uint32_t head_bytes(const cam_layout layout) { return 2 * PANEL_ROWS * layout.halves; }
INLINE uint32_t code_bytes(const cam_layout layout) { return GROUP_BYTES * layout.bits; }
INLINE uint32_t block_bytes(const cam_layout layout) {
    return code_bytes(layout) + PANEL_ROWS * (layout.bytes + 4 * layout.floats);
}
/* A span, or a column of floats. */
INLINE uint32_t span_bytes(const cam_layout layout) {
    return layout.span ? head_bytes(layout) + layout.span * block_bytes(layout) : PANEL_ROWS * layout.stored;
}
INLINE uint32_t span_cols(const cam_layout layout) { return layout.span ? BLOCK * layout.span : 1; }
INLINE uint64_t panel_bytes(const cam_layout layout, uint32_t cols) {
    return (uint64_t)(cols / span_cols(layout)) * span_bytes(layout);
}
INLINE uint32_t n_panels(uint32_t rows) { return (rows + PANEL_ROWS - 1) / PANEL_ROWS; }

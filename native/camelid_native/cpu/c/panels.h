/* Layout of a matrix of each type in panels of 16 rows.
 *
 * A panel is 16 rows by all columns; the last panel is padded with rows of zeros. A panel of floats stores
 * column by column, 16 values each. A panel of a quantized type is a sequence of spans. A span is a head of
 * `halves` float16 per row, then `span` blocks of 32 columns. A block is
 *   codes   8 groups of 4 columns. A group's codes are 64 bytes, with row r's four codes at 4 * r. Codes of
 *           fewer bits are split into planes of 4, 2 and 1 bits, as many as needed, the lowest bits first. In
 *           a plane of w bits, group g is in bits w * g % 8 and up of 64 bytes, shared with its neighbours.
 *   bytes   [bytes][16] u8
 * A code of 8 bits is signed, a code of fewer bits is not negative. If the type has a table, the code indexes
 * 16 bytes, which are not negative if the type has a `zero`, else signed. q is the code, or the table's byte.
 * The value is
 *   BY_D    halves d               d * (q - zero)
 *   BY_DM   halves d m             d * (q - zero) + m
 *   BY_S    halves d, bytes s      (d * s) * (q - zero); s signed
 *   BY_ST   halves d, bytes s t    (d / 2^down * s) * (q - zero), then t for the last 16 columns; both signed
 *   BY_SM   halves d m, bytes s t  (d * s) * q - m * t
 *   BY_SMS  halves d m, bytes s t  (d * (s & 15)) * q - m * (s >> 4), then t for the last 16 columns
 *   BY_E    bytes e                half_of_e8m0(e) * (q - zero)
 *   BY_EE   bytes e f              half_of_ue4m3(e) * (q - zero), then f for the last 16 columns */
#pragma once
#include "blocks.h"
#include "codec_bits.h"
#include "simd.h"

enum { BLOCK = 32, GROUPS = 8, GROUP_BYTES = 4 * PANEL_ROWS, MAX_SPAN = 8 };
enum { BY_D, BY_DM, BY_S, BY_ST, BY_SM, BY_SMS, BY_E, BY_EE, N_SCALES };
enum { NO_TABLE, IQ4, E2M1, IQ1, IQ2, IQ3_XXS, IQ3_S, N_TABLES };

typedef struct {
    uint8_t stored;   /* bytes of a span of one row in the file; for floats, of one value */
    uint8_t span;     /* blocks of 32 columns per head; 0: floats */
    uint8_t bits;     /* bits of a code */
    uint8_t scales;   /* BY_... */
    int16_t zero;     /* code of value 0 */
    uint8_t table, down;
} cam_layout;

/*    name      id stored span bits scales zero table    down */
#define CAM_OWN_PANELS(_)                                      \
    _(q4_0,     2,  18,  1,  4, BY_D,    8, NO_TABLE, 0)       \
    _(q4_1,     3,  20,  1,  4, BY_DM,   0, NO_TABLE, 0)       \
    _(q5_0,     6,  22,  1,  5, BY_D,   16, NO_TABLE, 0)       \
    _(q5_1,     7,  24,  1,  5, BY_DM,   0, NO_TABLE, 0)       \
    _(q8_0,     8,  34,  1,  8, BY_D,    0, NO_TABLE, 0)       \
    _(q2_k,    10,  84,  8,  2, BY_SMS,  0, NO_TABLE, 0)       \
    _(q3_k,    11, 110,  8,  3, BY_ST,   4, NO_TABLE, 0)       \
    _(q4_k,    12, 144,  8,  4, BY_SM,   0, NO_TABLE, 0)       \
    _(q5_k,    13, 176,  8,  5, BY_SM,   0, NO_TABLE, 0)       \
    _(q6_k,    14, 210,  8,  6, BY_ST,  32, NO_TABLE, 0)       \
    _(affine2, 64,  12,  1,  2, BY_DM,   0, NO_TABLE, 0)       \
    _(affine3, 65,  16,  1,  3, BY_DM,   0, NO_TABLE, 0)       \
    _(affine6, 66,  28,  1,  6, BY_DM,   0, NO_TABLE, 0)       \
    _(affine8, 67,  36,  1,  8, BY_DM, -128, NO_TABLE, 0)      \
    _(iq4_nl,  20,  18,  1,  4, BY_D,    0, IQ4,      0)       \
    _(iq4_xs,  23, 136,  8,  4, BY_S,    0, IQ4,      0)       \
    _(mxfp4,   39,  17,  1,  4, BY_E,   64, E2M1,     0)       \
    _(nvfp4,   40,  36,  2,  4, BY_EE,  64, E2M1,     0)
/* Types that differ only in span, table and `down` share a product function. */
#define CAM_TABLE_PANELS(_)                                    \
    _(iq2_xxs, 16,  66,  8,  4, BY_ST,  64, IQ2,      3)       \
    _(iq2_xs,  17,  74,  8,  4, BY_ST,  64, IQ2,      3)       \
    _(iq3_xxs, 18,  98,  8,  4, BY_ST,  64, IQ3_XXS,  2)       \
    _(iq1_s,   19,  50,  8,  4, BY_ST,  64, IQ1,      3)       \
    _(iq3_s,   21, 110,  8,  4, BY_ST,  64, IQ3_S,    0)       \
    _(iq2_s,   22,  82,  8,  4, BY_ST,  64, IQ2,      3)       \
    _(iq1_m,   29,  56,  8,  4, BY_ST,  64, IQ1,      3)
#define CAM_TINY_PANELS(_)                                     \
    _(tq1_0,   34,  54,  8,  2, BY_D,    1, NO_TABLE, 0)       \
    _(tq2_0,   35,  66,  8,  2, BY_D,    1, NO_TABLE, 0)       \
    _(q1_0,    41,  18,  4,  2, BY_D,    1, NO_TABLE, 0)       \
    _(q2_0,    42,  18,  2,  2, BY_D,    1, NO_TABLE, 0)
#define CAM_FLOAT_PANELS(_)                                    \
    _(f32,      0,   4,  0, 32, BY_D,    0, NO_TABLE, 0)       \
    _(f16,      1,   2,  0, 16, BY_D,    0, NO_TABLE, 0)       \
    _(bf16,    30,   2,  0, 16, BY_D,    0, NO_TABLE, 0)
#define CAM_CODE_PANELS(_) CAM_OWN_PANELS(_) CAM_TABLE_PANELS(_) CAM_TINY_PANELS(_)
#define CAM_PANELS(_) CAM_CODE_PANELS(_) CAM_FLOAT_PANELS(_)

enum {
#define CAM_TYPE(name, id, ...) TYPE_##name = id,
    CAM_PANELS(CAM_TYPE)
#undef CAM_TYPE
    N_TYPES = 68
};

static const cam_layout layouts[N_TYPES] = {
#define CAM_LAYOUT(name, id, ...) [id] = {__VA_ARGS__},
    CAM_PANELS(CAM_LAYOUT)
#undef CAM_LAYOUT
};

static const uint8_t n_halves[N_SCALES] = {
    [BY_D] = 1, [BY_DM] = 2, [BY_S] = 1, [BY_ST] = 1, [BY_SM] = 2, [BY_SMS] = 2, [BY_E] = 0, [BY_EE] = 0};
static const uint8_t n_bytes[N_SCALES] = {
    [BY_D] = 0, [BY_DM] = 0, [BY_S] = 1, [BY_ST] = 2, [BY_SM] = 2, [BY_SMS] = 2, [BY_E] = 1, [BY_EE] = 2};

/* Values of the codes. */
static const int8_t *const tables[N_TABLES] = {
    [IQ4] = iq4_values, [E2M1] = e2m1_values, [IQ1] = iq1_values, [IQ2] = iq2_values,
    [IQ3_XXS] = iq3_xxs_values, [IQ3_S] = iq3_s_values};

/* Factor 2^-down of d. */
INLINE float unit_of(const cam_layout layout) { return float_of_bits((127u - layout.down) << 23); }

/* Layout of a type; NULL if the type has no panels. */
INLINE const cam_layout *layout_of(uint32_t type) {
    return type < N_TYPES && layouts[type].stored ? &layouts[type] : NULL;
}
INLINE uint32_t head_bytes(const cam_layout layout) { return 2 * PANEL_ROWS * n_halves[layout.scales]; }
INLINE uint32_t code_bytes(const cam_layout layout) { return GROUP_BYTES * layout.bits; }
INLINE uint32_t block_bytes(const cam_layout layout) {
    return code_bytes(layout) + PANEL_ROWS * n_bytes[layout.scales];
}
/* Bytes of a span, or of a column of floats. */
INLINE uint32_t span_bytes(const cam_layout layout) {
    return layout.span ? head_bytes(layout) + layout.span * block_bytes(layout) : PANEL_ROWS * layout.stored;
}
INLINE uint32_t span_cols(const cam_layout layout) { return layout.span ? BLOCK * layout.span : 1; }
INLINE uint64_t panel_bytes(const cam_layout layout, uint32_t cols) {
    return (uint64_t)(cols / span_cols(layout)) * span_bytes(layout);
}
INLINE uint32_t n_panels(uint32_t rows) { return (rows + PANEL_ROWS - 1) / PANEL_ROWS; }

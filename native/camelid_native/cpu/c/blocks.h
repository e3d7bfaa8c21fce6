/* Blocks of tensor types, byte for byte as in a file. Source of GGUF's: ggml-common.h of llama.cpp.
 *
 * The fields are explained at the codec of each type, in codecs_*.c. `d` and `m` are float16. */
#pragma once
#include <stdint.h>

/* No padding and no alignment: a row may begin at any byte of a mapped file. */
#define PACKED __attribute__((packed))

typedef struct PACKED { uint16_t d; uint8_t q[16]; } block_q4_0;
typedef struct PACKED { uint16_t d, m; uint8_t q[16]; } block_q4_1;
typedef struct PACKED { uint16_t d; uint32_t high; uint8_t q[16]; } block_q5_0;
typedef struct PACKED { uint16_t d, m; uint32_t high; uint8_t q[16]; } block_q5_1;
typedef struct PACKED { uint16_t d; int8_t q[32]; } block_q8_0;

typedef struct PACKED { uint8_t scales[16], q[64]; uint16_t d, dmin; } block_q2_k;
typedef struct PACKED { uint8_t high[32], q[64], scales[12]; uint16_t d; } block_q3_k;
typedef struct PACKED { uint16_t d, dmin; uint8_t scales[12], q[128]; } block_q4_k;
typedef struct PACKED { uint16_t d, dmin; uint8_t scales[12], high[32], q[128]; } block_q5_k;
typedef struct PACKED { uint8_t low[128], high[64]; int8_t scales[16]; uint16_t d; } block_q6_k;

typedef struct PACKED { uint8_t points[4]; uint32_t signs; } group_iq2_xxs;
typedef struct PACKED { uint16_t d; group_iq2_xxs groups[8]; } block_iq2_xxs;
typedef struct PACKED { uint16_t d, q[32]; uint8_t scales[8]; } block_iq2_xs;
typedef struct PACKED { uint16_t d; uint8_t points[32], signs[32], high[8], scales[8]; } block_iq2_s;
typedef struct PACKED { uint16_t d; uint8_t points[64]; uint32_t signs[8]; } block_iq3_xxs;
typedef struct PACKED { uint16_t d; uint8_t points[64], high[8], signs[32], scales[4]; } block_iq3_s;
typedef struct PACKED { uint16_t d; uint8_t points[32]; uint16_t high[8]; } block_iq1_s;
typedef struct PACKED { uint8_t points[32], high[16]; uint16_t scales[4]; } block_iq1_m;
typedef struct PACKED { uint16_t d; uint8_t q[16]; } block_iq4_nl;
typedef struct PACKED { uint16_t d, high; uint8_t low[4], q[128]; } block_iq4_xs;

typedef struct PACKED { uint8_t q[48], high[4]; uint16_t d; } block_tq1_0;
typedef struct PACKED { uint8_t q[64]; uint16_t d; } block_tq2_0;
typedef struct PACKED { uint8_t e, q[16]; } block_mxfp4;
typedef struct PACKED { uint8_t scales[4], q[32]; } block_nvfp4;
typedef struct PACKED { uint16_t d; uint8_t q[16]; } block_q1_0;
typedef struct PACKED { uint16_t d; uint8_t q[16]; } block_q2_0;

/* Of matrices that MLX quantized: a stream of unsigned integers, lowest bits first. */
typedef struct PACKED { uint16_t d, m; uint8_t q[8]; } block_affine2;
typedef struct PACKED { uint16_t d, m; uint8_t q[12]; } block_affine3;
typedef struct PACKED { uint16_t d, m; uint8_t q[24]; } block_affine6;
typedef struct PACKED { uint16_t d, m; uint8_t q[32]; } block_affine8;
typedef struct PACKED { uint8_t e, q[32]; } block_mxfp8;

/* Values of the codes of iq4_nl and iq4_xs. */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
/* E2M1 values of the OCP microscaling formats 1.0, doubled to be integers; the scales are halved. */
static const int8_t e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Coordinates of the grid points of iq_grids.h, indexed by 3 bits of the grid and a sign bit. In iq1 the sign
 * bit is the sign of an eighth that is added to -1, 0 or 1; the table is in eighths. */
static const int8_t iq1_values[16] = {-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7};
static const int8_t iq2_values[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43};
static const int8_t iq3_xxs_values[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                          -4, -12, -20, -28, -36, -44, -52, -62};
static const int8_t iq3_s_values[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

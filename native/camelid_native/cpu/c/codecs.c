/* Table of the codecs of all tensor types, and decoding of rows of any length. */
#include "codecs.h"

#include "codecs_plain.c"
#include "codecs_legacy.c"
#include "codecs_superblock.c"
#include "codecs_grids.c"
#include "codecs_tiny.c"
#include "codecs_affine.c"

static const cam_codec codecs[N_CODECS] = {
    [0] = {1, 4, decode_f32, encode_f32},
    [1] = {1, 2, decode_f16, encode_f16},
    [2] = {32, sizeof(block_q4_0), decode_q4_0, encode_q4_0},
    [3] = {32, sizeof(block_q4_1), decode_q4_1, encode_q4_1},
    [6] = {32, sizeof(block_q5_0), decode_q5_0, encode_q5_0},
    [7] = {32, sizeof(block_q5_1), decode_q5_1, encode_q5_1},
    [8] = {32, sizeof(block_q8_0), decode_q8_0, encode_q8_0},
    [10] = {256, sizeof(block_q2_k), decode_q2_k, NULL},
    [11] = {256, sizeof(block_q3_k), decode_q3_k, NULL},
    [12] = {256, sizeof(block_q4_k), decode_q4_k, NULL},
    [13] = {256, sizeof(block_q5_k), decode_q5_k, NULL},
    [14] = {256, sizeof(block_q6_k), decode_q6_k, NULL},
    [16] = {256, sizeof(block_iq2_xxs), decode_iq2_xxs, NULL},
    [17] = {256, sizeof(block_iq2_xs), decode_iq2_xs, NULL},
    [18] = {256, sizeof(block_iq3_xxs), decode_iq3_xxs, NULL},
    [19] = {256, sizeof(block_iq1_s), decode_iq1_s, NULL},
    [20] = {32, sizeof(block_iq4_nl), decode_iq4_nl, NULL},
    [21] = {256, sizeof(block_iq3_s), decode_iq3_s, NULL},
    [22] = {256, sizeof(block_iq2_s), decode_iq2_s, NULL},
    [23] = {256, sizeof(block_iq4_xs), decode_iq4_xs, NULL},
    [24] = {1, 1, decode_i8, NULL},
    [25] = {1, 2, decode_i16, NULL},
    [26] = {1, 4, decode_i32, NULL},
    [27] = {1, 8, decode_i64, NULL},
    [28] = {1, 8, decode_f64, NULL},
    [29] = {256, sizeof(block_iq1_m), decode_iq1_m, NULL},
    [30] = {1, 2, decode_bf16, encode_bf16},
    [34] = {256, sizeof(block_tq1_0), decode_tq1_0, NULL},
    [35] = {256, sizeof(block_tq2_0), decode_tq2_0, NULL},
    [39] = {32, sizeof(block_mxfp4), decode_mxfp4, NULL},
    [40] = {64, sizeof(block_nvfp4), decode_nvfp4, NULL},
    [41] = {128, sizeof(block_q1_0), decode_q1_0, NULL},
    [42] = {64, sizeof(block_q2_0), decode_q2_0, NULL},
    [64] = {32, sizeof(block_affine2), decode_affine2, NULL},
    [65] = {32, sizeof(block_affine3), decode_affine3, NULL},
    [66] = {32, sizeof(block_affine6), decode_affine6, NULL},
    [67] = {32, sizeof(block_affine8), decode_affine8, NULL},
    [68] = {32, sizeof(block_mxfp8), decode_mxfp8, NULL},
};

/* Values per codec call: whole blocks of every type, and a count that fits in a uint32_t. */
enum { CODEC_RUN = 1 << 16 };

INLINE uint32_t run_of(uint64_t n) { return n < CODEC_RUN ? (uint32_t)n : CODEC_RUN; }

/* Decodes n values (whole blocks). Returns 1 if the type has no codec. */
static uint32_t variant_decode(uint32_t type, const uint8_t *blocks, float *values, uint64_t n) {
    if (type >= N_CODECS || !codecs[type].decode) return 1;
    for (; n; n -= run_of(n), values += CODEC_RUN, blocks += codec_row_bytes(type, CODEC_RUN))
        codecs[type].decode(blocks, values, run_of(n));
    return 0;
}

static uint32_t variant_encode(uint32_t type, const float *values, uint8_t *blocks, uint64_t n) {
    if (type >= N_CODECS || !codecs[type].encode) return 1;
    for (; n; n -= run_of(n), values += CODEC_RUN, blocks += codec_row_bytes(type, CODEC_RUN))
        codecs[type].encode(values, blocks, run_of(n));
    return 0;
}

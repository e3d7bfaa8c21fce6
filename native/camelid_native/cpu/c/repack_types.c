/* Codes and scales of a span of one row, extracted from the blocks of a file. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"
#include "panels.h"

typedef struct {
    int8_t codes[MAX_SPAN * BLOCK];   /* one code per byte */
    uint16_t halves[2];
    uint8_t bytes[MAX_SPAN][2];
} cam_piece;

typedef void cam_fetch(const void *stored, cam_piece *piece);

static void fetch_q4_0(const void *stored, cam_piece *piece) {
    const block_q4_0 *block = stored;
    piece->halves[0] = block->d;
    four_bits(piece->codes, block->q);
}
static void fetch_q4_1(const void *stored, cam_piece *piece) {
    const block_q4_1 *block = stored;
    piece->halves[0] = block->d, piece->halves[1] = block->m;
    four_bits(piece->codes, block->q);
}
static void fetch_q5_0(const void *stored, cam_piece *piece) {
    const block_q5_0 *block = stored;
    piece->halves[0] = block->d;
    five_bits(piece->codes, block->q, block->high);
}
static void fetch_q5_1(const void *stored, cam_piece *piece) {
    const block_q5_1 *block = stored;
    piece->halves[0] = block->d, piece->halves[1] = block->m;
    five_bits(piece->codes, block->q, block->high);
}
static void fetch_q8_0(const void *stored, cam_piece *piece) {
    const block_q8_0 *block = stored;
    piece->halves[0] = block->d;
    memcpy(piece->codes, block->q, BLOCK);
}

#define CAM_FETCH_AFFINE(bits)                                                                 \
    static void fetch_affine##bits(const void *stored, cam_piece *piece) {                     \
        const block_affine##bits *block = stored;                                              \
        piece->halves[0] = block->d, piece->halves[1] = block->m;                              \
        unpack_stream(piece->codes, block->q, BLOCK, bits);                                    \
    }
CAM_FETCH_AFFINE(2)
CAM_FETCH_AFFINE(3)
CAM_FETCH_AFFINE(6)
CAM_FETCH_AFFINE(8)
#undef CAM_FETCH_AFFINE

static void fetch_scales(const uint8_t *packed, cam_piece *piece) {
    cam_scales s = scales_of_12(packed);
    for (uint32_t b = 0; b < MAX_SPAN; b++) {
        piece->bytes[b][0] = s.scale[b];
        piece->bytes[b][1] = s.minimum[b];
    }
}
static void fetch_q4_k(const void *stored, cam_piece *piece) {
    const block_q4_k *block = stored;
    piece->halves[0] = block->d, piece->halves[1] = block->dmin;
    fetch_scales(block->scales, piece);
    unpack_wide(piece->codes, block->q, 128, 4, 32);
}
static void fetch_q5_k(const void *stored, cam_piece *piece) {
    const block_q5_k *block = stored;
    piece->halves[0] = block->d, piece->halves[1] = block->dmin;
    fetch_scales(block->scales, piece);
    unpack_wide(piece->codes, block->q, 128, 4, 32);
    unpack_above(piece->codes, block->high, 32, 1, 32, 4);
}
static void fetch_q6_k(const void *stored, cam_piece *piece) {
    const block_q6_k *block = stored;
    piece->halves[0] = block->d;
    memcpy(piece->bytes, block->scales, sizeof block->scales);
    unpack_wide(piece->codes, block->low, 128, 4, 64);
    unpack_above(piece->codes, block->high, 64, 2, 32, 4);
}
static void fetch_q2_k(const void *stored, cam_piece *piece) {
    const block_q2_k *block = stored;
    piece->halves[0] = block->d, piece->halves[1] = block->dmin;
    memcpy(piece->bytes, block->scales, sizeof block->scales);
    unpack_wide(piece->codes, block->q, 64, 2, 32);
}
static void fetch_q3_k(const void *stored, cam_piece *piece) {
    const block_q3_k *block = stored;
    int8_t scales[2 * MAX_SPAN];
    piece->halves[0] = block->d;
    six_bits_of_12(scales, block->scales);
    memcpy(piece->bytes, scales, sizeof scales);
    unpack_wide(piece->codes, block->q, 64, 2, 32);
    unpack_above(piece->codes, block->high, 32, 1, 32, 2);
}

/* ---- Types with a table of 16 values */

static void fetch_iq4_nl(const void *stored, cam_piece *piece) {
    const block_iq4_nl *block = stored;
    piece->halves[0] = block->d;
    four_bits(piece->codes, block->q);
}
static void fetch_iq4_xs(const void *stored, cam_piece *piece) {
    const block_iq4_xs *block = stored;
    piece->halves[0] = block->d;
    for (uint32_t b = 0; b < MAX_SPAN; b++) piece->bytes[b][0] = (uint8_t)scale_iq4_xs(block, b);
    unpack_wide(piece->codes, block->q, 128, 4, 16);
}
static void fetch_mxfp4(const void *stored, cam_piece *piece) {
    const block_mxfp4 *block = stored;
    piece->bytes[0][0] = block->e;
    four_bits(piece->codes, block->q);
}
static void fetch_nvfp4(const void *stored, cam_piece *piece) {
    const block_nvfp4 *block = stored;
    memcpy(piece->bytes, block->scales, sizeof block->scales);
    unpack_wide(piece->codes, block->q, 32, 4, 8);
}

#define CAM_FETCH(name, ...)                                                              \
    static void fetch_##name(const void *stored, cam_piece *piece) {                      \
        piece->halves[0] = d_##name(stored);                                              \
        for (uint32_t g = 0; g < 2 * MAX_SPAN; g++)                                       \
            piece->bytes[g / 2][g % 2] = (uint8_t)odd_##name(stored, g);                  \
        for (uint32_t p = 0; p < 4 * MAX_SPAN; p++)                                       \
            eight_codes(piece->codes + 8 * p, nibbles_##name(stored, p));                 \
    }
CAM_TABLE_PANELS(CAM_FETCH)
#undef CAM_FETCH

/* ---- Types with values -1, 0, 1 and, in q2_0, 2 */

static void fetch_tq1_0(const void *stored, cam_piece *piece) {
    const block_tq1_0 *block = stored;
    piece->halves[0] = block->d;
    digits_tq1_0(piece->codes, block);
}
static void fetch_tq2_0(const void *stored, cam_piece *piece) {
    const block_tq2_0 *block = stored;
    piece->halves[0] = block->d;
    unpack_wide(piece->codes, block->q, 64, 2, 32);
}
static void fetch_q1_0(const void *stored, cam_piece *piece) {
    const block_q1_0 *block = stored;
    piece->halves[0] = block->d;
    unpack_bits(piece->codes, block->q, 128, 1, 1);
}
static void fetch_q2_0(const void *stored, cam_piece *piece) {
    const block_q2_0 *block = stored;
    piece->halves[0] = block->d;
    unpack_bits(piece->codes, block->q, 64, 2, 0);
}

static cam_fetch *const fetches[N_TYPES] = {
#define CAM_FETCH(name, id, ...) [id] = fetch_##name,
    CAM_CODE_PANELS(CAM_FETCH)
#undef CAM_FETCH
};

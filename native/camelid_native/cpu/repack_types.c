/* The codes and scales of a span of one row, taken from the blocks of a file. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"
#include "panels.h"

typedef struct {
    int8_t codes[MAX_SPAN * BLOCK];   /* one to a byte */
    uint16_t halves[2];
    uint8_t bytes[MAX_SPAN][2];
    float floats[MAX_SPAN][4];
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
    unpack_wide(piece->codes, block->q, 128, 4, 32, 0);
}
static void fetch_q5_k(const void *stored, cam_piece *piece) {
    const block_q5_k *block = stored;
    piece->halves[0] = block->d, piece->halves[1] = block->dmin;
    fetch_scales(block->scales, piece);
    unpack_wide(piece->codes, block->q, 128, 4, 32, 0);
    unpack_wide(piece->codes, block->high, 32, 1, 32, 4);
}
static void fetch_q6_k(const void *stored, cam_piece *piece) {
    const block_q6_k *block = stored;
    piece->halves[0] = block->d;
    memcpy(piece->bytes, block->scales, sizeof block->scales);
    unpack_wide(piece->codes, block->low, 128, 4, 64, 0);
    unpack_wide(piece->codes, block->high, 64, 2, 32, 4);
}
static void fetch_q2_k(const void *stored, cam_piece *piece) {
    const block_q2_k *block = stored;
    float d = half_value(block->d), dmin = half_value(block->dmin);
    unpack_wide(piece->codes, block->q, 64, 2, 32, 0);
    for (uint32_t g = 0; g < 16; g++) {
        piece->floats[g / 2][g % 2] = d * (block->scales[g] & 15);
        piece->floats[g / 2][2 + g % 2] = -(dmin * (block->scales[g] >> 4));
    }
}

/* ---- Types that go by their values: whole numbers times a unit. The unit of group g, of 16 columns: */

static float unit_q3_k(const block_q3_k *block, uint32_t g) {
    int8_t scales[16] = {0};
    six_bits_of_12(scales, block->scales);
    return half_value(block->d) * scales[g];
}
static float unit_iq2_xxs(const block_iq2_xxs *block, uint32_t g) {
    return middle(half_value(block->d), block->groups[g / 2].signs >> 28, 0.25f);
}
static float unit_iq2_xs(const block_iq2_xs *block, uint32_t g) {
    return middle(half_value(block->d), nibble(block->scales, g), 0.25f);
}
static float unit_iq2_s(const block_iq2_s *block, uint32_t g) {
    return middle(half_value(block->d), nibble(block->scales, g), 0.25f);
}
static float unit_iq3_xxs(const block_iq3_xxs *block, uint32_t g) {
    return middle(half_value(block->d), block->signs[g / 2] >> 28, 0.5f);
}
static float unit_iq3_s(const block_iq3_s *block, uint32_t g) {
    return half_value(block->d) * (float)(1 + 2 * nibble(block->scales, g / 2));
}
/* Coordinates are -1, 0 or 1, and delta is an eighth. */
static float unit_iq1_s(const block_iq1_s *block, uint32_t g) {
    return half_value(block->d) * (float)(2 * (block->high[g / 2] >> 12 & 7) + 1) * 0.125f;
}
static float unit_iq1_m(const block_iq1_m *block, uint32_t g) {
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) d |= (uint32_t)(block->scales[i] >> 12) << 4 * i;
    return half_value((uint16_t)d) * (float)(2 * (block->scales[g / 4] >> 3 * (g % 4) & 7) + 1) * 0.125f;
}
static float unit_iq4_nl(const block_iq4_nl *block, uint32_t g) { return (void)g, half_value(block->d); }
static float unit_iq4_xs(const block_iq4_xs *block, uint32_t g) {
    uint32_t scale = nibble(block->low, g / 2) | (block->high >> 2 * (g / 2) & 3u) << 4;
    return half_value(block->d) * (float)((int)scale - 32);
}
static float unit_tq1_0(const block_tq1_0 *block, uint32_t g) { return (void)g, half_value(block->d); }
static float unit_tq2_0(const block_tq2_0 *block, uint32_t g) { return (void)g, half_value(block->d); }
static float unit_mxfp4(const block_mxfp4 *block, uint32_t g) { return (void)g, half_of_e8m0(block->e); }
static float unit_nvfp4(const block_nvfp4 *block, uint32_t g) { return half_of_ue4m3(block->scales[g]); }
static float unit_q1_0(const block_q1_0 *block, uint32_t g) { return (void)g, half_value(block->d); }
static float unit_q2_0(const block_q2_0 *block, uint32_t g) { return (void)g, half_value(block->d); }

static void fetch_values(const float *values, const float *units, uint32_t n, cam_piece *piece) {
    for (uint32_t i = 0; i < n; i += LANES) {
        float unit = units[i / 16];
        vf codes = unit == 0.0f ? (vf){0} : vf_load(values + i) / unit;
        store_codes(piece->codes + i, codes);
        piece->floats[i / BLOCK][i / 16 % 2] = unit;
    }
}

#define CAM_FETCH(name, id, ...)                                                                     \
    static void fetch_##name(const void *stored, cam_piece *piece) {                                 \
        float values[MAX_SPAN * BLOCK], units[2 * MAX_SPAN];                                         \
        const uint32_t n = BLOCK * layouts[TYPE_##name].span;                                        \
        for (uint32_t g = 0; g < n / 16; g++) units[g] = unit_##name(stored, g);                     \
        decode_##name(stored, values, n);                                                            \
        fetch_values(values, units, n, piece);                                                       \
    }
CAM_BYTE_PANELS(CAM_FETCH)
#undef CAM_FETCH

static cam_fetch *const fetches[N_TYPES] = {
#define CAM_FETCH(name, id, ...) [id] = fetch_##name,
    CAM_CODE_PANELS(CAM_FETCH)
#undef CAM_FETCH
};

/* Codecs of the IQ types: points of a fixed grid, chosen by index, and signs; or a table of 16 values. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"
#include "iq_grids.h"

/* Coordinates of the points, by their number in iq_grids.h. */
static const int8_t levels_iq1[] = {-1, 0, 1};
static const int8_t levels_iq2[] = {8, 25, 43};
static const int8_t levels_iq3_xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
static const int8_t levels_iq3_s[] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Seven signs are stored, and the eighth makes the number of minus signs even. */
INLINE uint32_t even_signs(uint32_t seven) {
    uint32_t folded = seven ^ seven >> 4;
    folded ^= folded >> 2;
    return seven | ((folded ^ folded >> 1) & 1) << 7;
}

/* Eight values: coordinate i is levels[bits of point], less than 0 where bit i of `signs` is set. */
INLINE void signed_point(float *values, float scale, uint32_t point, int bits, const int8_t *levels,
                         uint32_t signs) {
    for (int i = 0; i < 8; i++) {
        int level = levels[point >> bits * i & ((1u << bits) - 1)], flip = -(int)(signs >> i & 1);
        values[i] = scale * (float)((level ^ flip) - flip);
    }
}

/* Two points of four coordinates of three bits, as one of eight. */
INLINE uint32_t joined(const uint16_t *grid, uint32_t first, uint32_t second) {
    return grid[first] | (uint32_t)grid[second] << 12;
}

INLINE float middle(float d, uint32_t step, float unit) { return d * ((float)step + 0.5f) * unit; }
INLINE uint32_t nibble(const uint8_t *packed, uint32_t i) { return packed[i / 2] >> 4 * (i & 1) & 15; }

/* A group of 32: four points, four times seven signs, the scale on top. */
static void values_iq2_xxs(const block_iq2_xxs *block, float *values) {
    float d = half_value(block->d);
    for (uint32_t p = 0; p < 32; p++) {
        const group_iq2_xxs *group = &block->groups[p / 4];
        uint32_t point = grid_iq2_xxs[group->points[p % 4]], signs = group->signs;
        signed_point(values + 8 * p, middle(d, signs >> 28, 0.25f), point, 2, levels_iq2,
                     even_signs(signs >> 7 * (p % 4) & 127));
    }
}

/* q: nine bits of point, seven signs; a scale for two points. */
static void values_iq2_xs(const block_iq2_xs *block, float *values) {
    float d = half_value(block->d);
    for (uint32_t p = 0; p < 32; p++) {
        uint32_t q = block->q[p];
        signed_point(values + 8 * p, middle(d, nibble(block->scales, p / 2), 0.25f), grid_iq2_xs[q & 511], 2,
                     levels_iq2, even_signs(q >> 9));
    }
}

static void values_iq2_s(const block_iq2_s *block, float *values) {
    float d = half_value(block->d);
    for (uint32_t p = 0; p < 32; p++) {
        uint32_t index = block->points[p] | (block->high[p / 4] >> 2 * (p % 4) & 3u) << 8;
        signed_point(values + 8 * p, middle(d, nibble(block->scales, p / 2), 0.25f), grid_iq2_s[index], 2,
                     levels_iq2, block->signs[p]);
    }
}

/* A word for 32 values: four times seven signs, the scale on top. */
static void values_iq3_xxs(const block_iq3_xxs *block, float *values) {
    float d = half_value(block->d);
    for (uint32_t p = 0; p < 32; p++) {
        uint32_t signs = block->signs[p / 4];
        uint32_t point = joined(grid_iq3_xxs, block->points[2 * p], block->points[2 * p + 1]);
        signed_point(values + 8 * p, middle(d, signs >> 28, 0.5f), point, 3, levels_iq3_xxs,
                     even_signs(signs >> 7 * (p % 4) & 127));
    }
}

INLINE uint32_t index_iq3_s(const block_iq3_s *block, uint32_t i) {
    return block->points[i] | (block->high[i / 8] >> i % 8 & 1u) << 8;
}
static void values_iq3_s(const block_iq3_s *block, float *values) {
    float d = half_value(block->d);
    for (uint32_t p = 0; p < 32; p++) {
        float scale = d * (float)(1 + 2 * nibble(block->scales, p / 4));
        uint32_t point = joined(grid_iq3_s, index_iq3_s(block, 2 * p), index_iq3_s(block, 2 * p + 1));
        signed_point(values + 8 * p, scale, point, 3, levels_iq3_s, block->signs[p]);
    }
}

/* Eight values: scale * (coordinate + delta) */
INLINE void shifted_point(float *values, float scale, uint32_t index, float delta) {
    for (int i = 0; i < 8; i++) values[i] = scale * (levels_iq1[grid_iq1[index] >> 2 * i & 3] + delta);
}

/* high: four times three bits of point, three bits of scale, the sign of delta. */
static void values_iq1_s(const block_iq1_s *block, float *values) {
    float d = half_value(block->d);
    for (uint32_t p = 0; p < 32; p++) {
        uint32_t high = block->high[p / 4], index = block->points[p] | (high >> 3 * (p % 4) & 7) << 8;
        shifted_point(values + 8 * p, d * (float)(2 * (high >> 12 & 7) + 1), index,
                      high >> 15 ? -0.125f : 0.125f);
    }
}

/* A nibble of `high`: three bits of point, the sign of delta. The top nibbles of `scales` are d, below them
 * lie four times three bits, each for two points. */
static void values_iq1_m(const block_iq1_m *block, float *values) {
    uint16_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint16_t)(block->scales[i] >> 12 << 4 * i);
    float d = half_value(bits);
    for (uint32_t p = 0; p < 32; p++) {
        uint32_t step = block->scales[p / 8] >> 3 * (p / 2 % 4) & 7, high = nibble(block->high, p);
        shifted_point(values + 8 * p, d * (float)(2 * step + 1), block->points[p] | (high & 7) << 8,
                      high >> 3 ? -0.125f : 0.125f);
    }
}

static void values_iq4_nl(const block_iq4_nl *block, float *values) {
    int8_t codes[32] = {0};
    unpack_wide(codes, block->q, 16, 4, 16, 0);
    look_up_codes(codes, iq4_values, 32);
    scaled_codes(values, half_value(block->d), codes, 0, 32);
}

/* value = (d * (scale - 32)) * iq4_values[q], 32 in a group; four bits of scale in `low`, two in `high`. */
static void values_iq4_xs(const block_iq4_xs *block, float *values) {
    int8_t codes[256] = {0};
    float d = half_value(block->d);
    unpack_wide(codes, block->q, 128, 4, 16, 0);
    look_up_codes(codes, iq4_values, 256);
    for (uint32_t g = 0; g < 8; g++) {
        int scale = (int)(nibble(block->low, g) | (block->high >> 2 * g & 3u) << 4) - 32;
        scaled_codes(values + 32 * g, d * (float)scale, codes + 32 * g, 0, 32);
    }
}

DECODE_ROWS(iq2_xxs, 256)
DECODE_ROWS(iq2_xs, 256)
DECODE_ROWS(iq2_s, 256)
DECODE_ROWS(iq3_xxs, 256)
DECODE_ROWS(iq3_s, 256)
DECODE_ROWS(iq1_s, 256)
DECODE_ROWS(iq1_m, 256)
DECODE_ROWS(iq4_nl, 32)
DECODE_ROWS(iq4_xs, 256)

/* Codecs of the IQ types: indices into a fixed grid of points, with signs; or a table of 16 values. */
#include "blocks.h"
#include "codec_bits.h"
#include "codecs.h"
#include "iq_grids.h"

/* Eight signs from seven stored ones; the eighth makes the number of minus signs even. */
INLINE uint32_t even_signs(uint32_t seven) {
    uint32_t folded = seven ^ seven >> 4;
    folded ^= folded >> 2;
    return seven | ((folded ^ folded >> 1) & 1) << 7;
}

/* Spreads the fields of a word (8 of 1 bit, 8 of 2 bits, 4 of 3 bits), one per nibble. */
INLINE uint32_t nibbles_of_8x1(uint32_t word) {
    word = (word | word << 12) & 0x000F000F;
    word = (word | word << 6) & 0x03030303;
    return (word | word << 3) & 0x11111111;
}
INLINE uint32_t nibbles_of_8x2(uint32_t word) {
    word = (word | word << 8) & 0x00FF00FF;
    word = (word | word << 4) & 0x0F0F0F0F;
    return (word | word << 2) & 0x33333333;
}
INLINE uint32_t nibbles_of_4x3(uint32_t word) {
    word = (word & 0x003F) | (word & 0x0FC0) << 2;
    return (word & 0x0707) | (word & 0x3838) << 1;
}

/* Eight table codes from signs and one point of eight coordinates, or two points of four. */
INLINE uint32_t signed_eight(uint32_t point, uint32_t signs) {
    return nibbles_of_8x2(point) | nibbles_of_8x1(signs) << 3;
}
INLINE uint32_t signed_fours(uint32_t first, uint32_t second, uint32_t signs) {
    return nibbles_of_4x3(first) | nibbles_of_4x3(second) << 16 | nibbles_of_8x1(signs) << 3;
}

INLINE uint32_t nibble(const uint8_t *packed, uint32_t i) { return packed[i / 2] >> 4 * (i & 1) & 15; }

INLINE void eight_codes(int8_t *codes, uint32_t nibbles) {
    for (int i = 0; i < 8; i++) codes[i] = (int8_t)(nibbles >> 4 * i & 15);
}

/* Three functions per type: d_*, the block's scale; odd_*, its odd multiplier for the 16 columns of group g;
 * nibbles_*, the eight codes of point p. */

/* A group of 32 values: four points; a word of four times 7 sign bits, with the scale in the top 4 bits. */
INLINE uint16_t d_iq2_xxs(const block_iq2_xxs *block) { return block->d; }
INLINE uint32_t odd_iq2_xxs(const block_iq2_xxs *block, uint32_t g) {
    return 2 * (block->groups[g / 2].signs >> 28) + 1;
}
INLINE uint32_t nibbles_iq2_xxs(const block_iq2_xxs *block, uint32_t p) {
    const group_iq2_xxs *group = &block->groups[p / 4];
    return signed_eight(grid_iq2_xxs[group->points[p % 4]], even_signs(group->signs >> 7 * (p % 4) & 127));
}

/* q: 9 bits of point index, 7 sign bits; one scale per two points. */
INLINE uint16_t d_iq2_xs(const block_iq2_xs *block) { return block->d; }
INLINE uint32_t odd_iq2_xs(const block_iq2_xs *block, uint32_t g) { return 2 * nibble(block->scales, g) + 1; }
INLINE uint32_t nibbles_iq2_xs(const block_iq2_xs *block, uint32_t p) {
    return signed_eight(grid_iq2_xs[block->q[p] & 511], even_signs(block->q[p] >> 9));
}

INLINE uint16_t d_iq2_s(const block_iq2_s *block) { return block->d; }
INLINE uint32_t odd_iq2_s(const block_iq2_s *block, uint32_t g) { return 2 * nibble(block->scales, g) + 1; }
INLINE uint32_t nibbles_iq2_s(const block_iq2_s *block, uint32_t p) {
    uint32_t index = block->points[p] | (block->high[p / 4] >> 2 * (p % 4) & 3u) << 8;
    return signed_eight(grid_iq2_s[index], block->signs[p]);
}

/* A word per 32 values: four times 7 sign bits, with the scale in the top 4 bits. */
INLINE uint16_t d_iq3_xxs(const block_iq3_xxs *block) { return block->d; }
INLINE uint32_t odd_iq3_xxs(const block_iq3_xxs *block, uint32_t g) {
    return 2 * (block->signs[g / 2] >> 28) + 1;
}
INLINE uint32_t nibbles_iq3_xxs(const block_iq3_xxs *block, uint32_t p) {
    return signed_fours(grid_iq3_xxs[block->points[2 * p]], grid_iq3_xxs[block->points[2 * p + 1]],
                        even_signs(block->signs[p / 4] >> 7 * (p % 4) & 127));
}

INLINE uint16_t d_iq3_s(const block_iq3_s *block) { return block->d; }
INLINE uint32_t odd_iq3_s(const block_iq3_s *block, uint32_t g) {
    return 2 * nibble(block->scales, g / 2) + 1;
}
INLINE uint32_t point_iq3_s(const block_iq3_s *block, uint32_t i) {
    return grid_iq3_s[block->points[i] | (block->high[i / 8] >> i % 8 & 1u) << 8];
}
INLINE uint32_t nibbles_iq3_s(const block_iq3_s *block, uint32_t p) {
    return signed_fours(point_iq3_s(block, 2 * p), point_iq3_s(block, 2 * p + 1), block->signs[p]);
}

/* high: four times 3 bits of point index, 3 bits of scale, the sign of the eighth. */
INLINE uint16_t d_iq1_s(const block_iq1_s *block) { return block->d; }
INLINE uint32_t odd_iq1_s(const block_iq1_s *block, uint32_t g) {
    return 2 * (block->high[g / 2] >> 12 & 7u) + 1;
}
INLINE uint32_t nibbles_iq1_s(const block_iq1_s *block, uint32_t p) {
    uint32_t high = block->high[p / 4], index = block->points[p] | (high >> 3 * (p % 4) & 7) << 8;
    return signed_eight(grid_iq1[index], high >> 15 ? 255 : 0);
}

/* A nibble of `high`: 3 bits of point index, the sign of the eighth. The top nibbles of `scales` form d; the
 * other 12 bits of each are four scales of 3 bits, one per two points. */
INLINE uint16_t d_iq1_m(const block_iq1_m *block) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint32_t)(block->scales[i] >> 12) << 4 * i;
    return (uint16_t)bits;
}
INLINE uint32_t odd_iq1_m(const block_iq1_m *block, uint32_t g) {
    return 2 * (block->scales[g / 4] >> 3 * (g % 4) & 7u) + 1;
}
INLINE uint32_t nibbles_iq1_m(const block_iq1_m *block, uint32_t p) {
    uint32_t high = nibble(block->high, p);
    return signed_eight(grid_iq1[block->points[p] | (high & 7) << 8], high >> 3 ? 255 : 0);
}

/* values = scale * table[code], for eight codes */
INLINE void eight_values(float *values, float scale, uint32_t nibbles, const int8_t *table) {
    for (int i = 0; i < 8; i++) values[i] = scale * (float)table[nibbles >> 4 * i & 15];
}

/* value = d * unit * odd * table[code]; the factors have so few bits that every product is exact */
#define VALUES_OF_POINTS(type, table, unit)                                                       \
    static void values_##type(const block_##type *block, float *values) {                         \
        const float d = half_value(d_##type(block)) * unit;                                       \
        for (uint32_t p = 0; p < 32; p++, values += 8)                                            \
            eight_values(values, d * (float)odd_##type(block, p / 2), nibbles_##type(block, p), table); \
    }
VALUES_OF_POINTS(iq2_xxs, iq2_values, 0.125f)
VALUES_OF_POINTS(iq2_xs, iq2_values, 0.125f)
VALUES_OF_POINTS(iq2_s, iq2_values, 0.125f)
VALUES_OF_POINTS(iq3_xxs, iq3_xxs_values, 0.25f)
VALUES_OF_POINTS(iq3_s, iq3_s_values, 1.0f)
VALUES_OF_POINTS(iq1_s, iq1_values, 0.125f)
VALUES_OF_POINTS(iq1_m, iq1_values, 0.125f)

static void values_iq4_nl(const block_iq4_nl *block, float *values) {
    int8_t codes[32];
    unpack_wide(codes, block->q, 16, 4, 16);
    look_up_codes(codes, iq4_values, 32);
    scaled_codes(values, half_value(block->d), codes, 0, 32);
}

/* Scale of group g: four bits in `low`, two in `high`, minus 32. */
INLINE int scale_iq4_xs(const block_iq4_xs *block, uint32_t g) {
    return (int)(nibble(block->low, g) | (block->high >> 2 * g & 3u) << 4) - 32;
}

/* value = (d * scale) * iq4_values[q], 32 in a group */
static void values_iq4_xs(const block_iq4_xs *block, float *values) {
    int8_t codes[256];
    float d = half_value(block->d);
    unpack_wide(codes, block->q, 128, 4, 16);
    look_up_codes(codes, iq4_values, 256);
    for (uint32_t g = 0; g < 8; g++)
        scaled_codes(values + 32 * g, d * (float)scale_iq4_xs(block, g), codes + 32 * g, 0, 32);
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

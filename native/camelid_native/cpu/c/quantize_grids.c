/* Quantizers of the IQ types with grids: the nearest point of a grid by exhaustive search.
 *
 * A vector's part of the error with scale s and point g is s * (s * Q - P) + sum(w * x * x), with
 * P = sum(2 * w * x * g) and Q = sum(w * g * g). P and Q of a point are sums of two entries of tables, which
 * hold all combinations of levels of half a vector. */
#include "batch.h"
#include "iq_grids.h"

enum { MOST_POINTS = 2048, MOST_COMBINATIONS = 81, N_TOPS = 6, N_VECTORS = 64 };
enum { SIGNS_ALL, SIGNS_EVEN, SIGNS_NONE };

typedef struct {
    const uint16_t *points;
    int n_points, bits;         /* bits of a coordinate's level in a point */
    int width, n_levels;        /* coordinates of a point; levels of a coordinate, levels[0] the least */
    float levels[8];
    int group, span, n_deltas;  /* vectors with one scale; vectors with one delta of 1/8, -1/8 (1: no delta) */
    int n_scales;               /* scales are odd multiples of d * unit */
    float unit;
    int signs;
    /* Inverses of what the largest value is mapped to; 0: scales are fitted to integers, as the search of so
     * large a grid is slow. */
    float tops[N_TOPS];
} cam_grid;

#define TOP(level, share) (float)(1.0 / (double)(level * share))
#define TOPS(level)                                                                            \
    {TOP(level, 0.5f), TOP(level, 0.65f), TOP(level, 0.8f), TOP(level, 0.95f), TOP(level, 1.1f), \
        TOP(level, 1.25f)}
#define LEVELS_2 2, 8, 3, {8, 25, 43}
#define LEVELS_3_XXS 3, 4, 8, {4, 12, 20, 28, 36, 44, 52, 62}
#define LEVELS_3_S 3, 4, 8, {1, 3, 5, 7, 9, 11, 13, 15}
#define LEVELS_1 2, 8, 3, {-1, 0, 1}
static const cam_grid of_iq2_xxs = {grid_iq2_xxs, 256, LEVELS_2, 4, 4, 1, 16, 0.125f, SIGNS_EVEN, TOPS(43.0f)};
static const cam_grid of_iq2_xs = {grid_iq2_xs, 512, LEVELS_2, 2, 2, 1, 16, 0.125f, SIGNS_EVEN, TOPS(43.0f)};
static const cam_grid of_iq2_s = {grid_iq2_s, 1024, LEVELS_2, 2, 2, 1, 16, 0.125f, SIGNS_ALL, TOPS(43.0f)};
static const cam_grid of_iq3_xxs = {grid_iq3_xxs, 256, LEVELS_3_XXS, 8, 8, 1, 16, 0.25f, SIGNS_EVEN, TOPS(62.0f)};
static const cam_grid of_iq3_s = {grid_iq3_s, 512, LEVELS_3_S, 8, 8, 1, 16, 1, SIGNS_ALL, TOPS(15.0f)};
static const cam_grid of_iq1_s = {grid_iq1, 2048, LEVELS_1, 4, 4, 2, 8, 1, SIGNS_NONE, {0}};
static const cam_grid of_iq1_m = {grid_iq1, 2048, LEVELS_1, 2, 1, 2, 8, 1, SIGNS_NONE, {0}};

/* Indices of both halves of each point in the tables of combinations. */
typedef struct { uint8_t low[MOST_POINTS], high[MOST_POINTS]; } cam_halves;
/* Sums of P and Q over half a vector, for each combination of levels: of the low half, of the high half. */
typedef struct { vf p[2][MOST_COMBINATIONS], q[2][MOST_COMBINATIONS]; } cam_combinations;

/* Codes of a batch's blocks: points and deltas by vector, scales by group, sign bits of eight values. */
typedef struct {
    uint16_t points[LANES][N_VECTORS];
    uint8_t deltas[LANES][N_VECTORS], signs[LANES][32];
    int32_t scales[MOST_GROUPS][LANES];
    vi d;
} cam_grid_codes;

static void find_halves(cam_halves *halves, const cam_grid *grid) {
    for (int k = 0; k < grid->n_points; k++) {
        int index[2] = {0, 0};
        for (int i = grid->width - 1; i >= 0; i--) {
            int *half = &index[i >= grid->width / 2];
            *half = *half * grid->n_levels + (grid->points[k] >> grid->bits * i & ((1 << grid->bits) - 1));
        }
        halves->low[k] = (uint8_t)index[0], halves->high[k] = (uint8_t)index[1];
    }
}

/* Adds a coordinate: sums[c * n + i] = sums[i] + terms[c]. */
INLINE int add_coordinate(vf *sums, int n, const vf *terms, int n_terms) {
    for (int c = n_terms - 1; c >= 0; c--)
        for (int i = 0; i < n; i++) sums[c * n + i] = sums[i] + terms[c];
    return n * n_terms;
}

static void combine_levels(cam_combinations *to, const cam_grid *grid, const vf *x, const vf *w, float delta) {
    const int half = grid->width / 2;
    for (int part = 0; part < 2; part++) {
        int n = 0;
        for (int i = part * half; i < (part + 1) * half; i++) {
            vf p[8], q[8], wx = w[i] * x[i] * 2.0f;
            for (int c = 0; c < grid->n_levels; c++) {
                const float level = grid->levels[c] + delta;
                p[c] = wx * level, q[c] = w[i] * (level * level);
            }
            if (n == 0) {
                memcpy(to->p[part], p, sizeof(vf) * (size_t)grid->n_levels);
                memcpy(to->q[part], q, sizeof(vf) * (size_t)grid->n_levels);
                n = grid->n_levels;
            } else {
                add_coordinate(to->p[part], n, p, grid->n_levels);
                n = add_coordinate(to->q[part], n, q, grid->n_levels);
            }
        }
    }
}

/* The least s * Q - P over all points, for each of N_TOPS scales. */
static void least_scores(const cam_combinations *of, const cam_halves *halves, int n_points, const vf *scales,
                         vf *results) {
    vf s[N_TOPS], least[N_TOPS];   /* in registers */
    for (int j = 0; j < N_TOPS; j++) s[j] = scales[j], least[j] = (vf)vi_set(0x7F800000);
    for (int k = 0; k < n_points; k++) {
        const uint32_t low = halves->low[k], high = halves->high[k];
        vf p = of->p[0][low] + of->p[1][high], q = of->q[0][low] + of->q[1][high];
        for (int j = 0; j < N_TOPS; j++) least[j] = vf_min(s[j] * q - p, least[j]);
    }
    memcpy(results, least, sizeof least);
}

/* The point of the least score, the first of equals, with its P and Q. */
typedef struct { vi point; vf score, p, q; } cam_point;
static cam_point nearest_point(const cam_combinations *of, const cam_halves *halves, int n_points, vf s) {
    cam_point best = {{0}, (vf)vi_set(0x7F800000), {0}, {0}};
    for (int k = 0; k < n_points; k++) {
        const uint32_t low = halves->low[k], high = halves->high[k];
        vf score = s * (of->q[0][low] + of->q[1][high]) - (of->p[0][low] + of->p[1][high]);
        vi better = score < best.score;
        best.score = vf_pick(better, score, best.score);
        best.point = chosen(better, vi_set(k), best.point);
    }
    for (int lane = 0; lane < LANES; lane++) {
        const uint32_t low = halves->low[best.point[lane]], high = halves->high[best.point[lane]];
        best.p[lane] = of->p[0][low][lane] + of->p[1][high][lane];
        best.q[lane] = of->q[0][low][lane] + of->q[1][high][lane];
    }
    return best;
}

static float delta_of(const cam_grid *grid, int i) { return grid->n_deltas == 1 ? 0.0f : i ? -0.125f : 0.125f; }

/* For each scale the least error of a group beyond that of zeros, divided by the scale; added to `least`. */
static void least_of_group(const cam_grid *grid, const cam_halves *halves, const vf *x, const vf *w, const vf *s,
                           vf *least) {
    cam_combinations sums;
    for (int span = 0; span < grid->group; span += grid->span) {
        vf of_span[N_TOPS] = {{0}};
        for (int i = 0; i < grid->n_deltas; i++) {
            vf of_delta[N_TOPS] = {{0}}, one[N_TOPS];
            for (int v = span; v < span + grid->span; v++) {
                combine_levels(&sums, grid, x + v * grid->width, w + v * grid->width, delta_of(grid, i));
                least_scores(&sums, halves, grid->n_points, s, one);
                for (int j = 0; j < N_TOPS; j++) of_delta[j] += one[j];
            }
            for (int j = 0; j < N_TOPS; j++)
                of_span[j] = i ? vf_min(of_span[j], of_delta[j]) : of_delta[j];
        }
        for (int j = 0; j < N_TOPS; j++) least[j] += of_span[j];
    }
}

/* Points of a group's vectors, their deltas, and the sums of P and Q. */
typedef struct { vi points[8], deltas[8]; vf p, q; } cam_choice;
static void choose_points(const cam_grid *grid, const cam_halves *halves, const vf *x, const vf *w, vf s,
                          cam_choice *choice) {
    cam_combinations sums;
    choice->p = choice->q = (vf){0};
    for (int span = 0; span < grid->group; span += grid->span) {
        cam_point found[2][8];
        vi second = {0};
        vf scores[2] = {{0}};
        for (int i = 0; i < grid->n_deltas; i++)
            for (int v = 0; v < grid->span; v++) {
                const int at = (span + v) * grid->width;
                combine_levels(&sums, grid, x + at, w + at, delta_of(grid, i));
                found[i][v] = nearest_point(&sums, halves, grid->n_points, s);
                scores[i] += found[i][v].score;
            }
        if (grid->n_deltas == 2) second = scores[1] < scores[0];
        for (int v = 0; v < grid->span; v++) {
            const cam_point *a = &found[0][v], *b = &found[grid->n_deltas - 1][v];
            vf p = vf_pick(second, b->p, a->p), q = vf_pick(second, b->q, a->q);
            choice->points[span + v] = chosen(second, b->point, a->point);
            choice->deltas[span + v] = second & 1;
            choice->p += p, choice->q += q;
        }
    }
}

/* The scale of a group, and its curvature. */
static cam_line fit_group(const cam_grid *grid, const cam_halves *halves, const vf *x, const vf *w) {
    vf top = vf_abs(largest_of(x, grid->group * grid->width)), s[N_TOPS], least[N_TOPS] = {{0}};
    for (int j = 0; j < N_TOPS; j++) s[j] = top * grid->tops[j];
    least_of_group(grid, halves, x, w, s, least);
    vf best = {0}, scale = {0};
    for (int j = 0; j < N_TOPS; j++) {
        vf error = least[j] * s[j];
        vi better = error < best;
        best = vf_pick(better, error, best), scale = vf_pick(better, s[j], scale);
    }
    cam_choice choice;
    choose_points(grid, halves, x, w, scale, &choice);
    vf solved = quotient(choice.p, choice.q) * 0.5f;
    return (cam_line){vf_pick(scale > (vf){0}, solved, (vf){0}), choice.q};
}

/* The scale of -1, 0 and 1, positive, as these codes have both signs. */
static cam_line fit_integers(const vf *x, const vf *w, int n) {
    static const float starts[] = {1.0f, 1.5f, 2.0f, 2.5f, 3.0f};
    cam_line line = fit_scale(x, w, n, (cam_nearest){TABLE_NONE, {-1, 1}}, starts, COUNT(starts));
    return (cam_line){vf_abs(line.scale), line.curvature};
}

/* Replaces x by its magnitudes and stores the signs of eight values at a time. Where the number of -1 must be
 * even and is odd, the value whose sign costs least changes it: its magnitude becomes negative. */
static void take_signs(cam_batch *batch, int even, cam_grid_codes *codes) {
    for (uint32_t v = 0; v < 32; v++) {
        vf *x = batch->x + 8 * v, least = (vf)vi_set(0x7F800000);
        const vf *w = batch->w + 8 * v;
        vi bits = {0}, flip = {0}, parity = {0};
        for (int i = 0; i < 8; i++) {
            vi negative = x[i] < (vf){0};
            x[i] = vf_abs(x[i]);
            vf cost = w[i] * x[i];
            vi cheaper = cost < least;
            bits |= negative & 1 << i, parity ^= negative;
            least = vf_pick(cheaper, cost, least), flip = chosen(cheaper, vi_set(1 << i), flip);
        }
        flip &= even ? parity : (vi){0};
        for (int i = 0; i < 8; i++) x[i] = vf_pick((flip & 1 << i) != 0, -x[i], x[i]);
        bits ^= flip;
        for (int lane = 0; lane < LANES; lane++) codes->signs[lane][v] = (uint8_t)bits[lane];
    }
}

/* Scales are fitted by group and rounded to codes; points are chosen again with the rounded scales, and d is
 * solved for again with these points. */
static void grid_codes_of(cam_batch *batch, const cam_grid *grid, cam_grid_codes *codes) {
    const int size = grid->group * grid->width, n = 256 / size;
    cam_halves halves;
    vf scales[MOST_GROUPS], curvatures[MOST_GROUPS], p = {0}, q = {0};
    find_halves(&halves, grid);
    if (grid->signs != SIGNS_NONE) take_signs(batch, grid->signs == SIGNS_EVEN, codes);
    for (int g = 0; g < n; g++) {
        const vf *x = batch->x + g * size, *w = batch->w + g * size;
        cam_line line = grid->tops[0] > 0 ? fit_group(grid, &halves, x, w) : fit_integers(x, w, size);
        scales[g] = line.scale, curvatures[g] = line.curvature;
    }
    const float top = (float)(2 * grid->n_scales - 1);
    const float starts[] = {top - 4, top - 2, top - 1, top, top + 1, top + 2};
    const cam_nearest odd = {TABLE_ODD, {0, (float)(grid->n_scales - 1)}};
    cam_stored d = stored_half(batch, fit_scale(scales, curvatures, n, odd, starts, COUNT(starts)).scale
                               * (1.0f / grid->unit));
    vf step = d.value * grid->unit, by = inverse(step);
    for (int g = 0; g < n; g++) {
        vf code = nearest_to(odd, scales[g] * by);
        cam_choice choice;
        choose_points(grid, &halves, batch->x + g * size, batch->w + g * size, step * code, &choice);
        p += choice.p * code, q += choice.q * code * code;
        vi_store(codes->scales[g], __builtin_convertvector((code - 1.0f) * 0.5f, vi));
        for (int v = 0; v < grid->group; v++)
            for (int lane = 0; lane < LANES; lane++) {
                codes->points[lane][g * grid->group + v] = (uint16_t)choice.points[v][lane];
                codes->deltas[lane][g * grid->group + v] = (uint8_t)choice.deltas[v][lane];
            }
    }
    codes->d = stored_half(batch, quotient(p, q) * 0.5f * (1.0f / grid->unit)).bits;
}

/* Four times seven sign bits, of which the eighth follows, and four bits of scale. */
INLINE uint32_t signs_and_scale(const cam_grid_codes *codes, uint32_t lane, int g) {
    uint32_t word = (uint32_t)codes->scales[g][lane] << 28;
    for (int k = 0; k < 4; k++) word |= (codes->signs[lane][4 * g + k] & 127u) << 7 * k;
    return word;
}
INLINE uint8_t scale_pair(const cam_grid_codes *codes, uint32_t lane, int g) {
    return (uint8_t)(codes->scales[2 * g][lane] | codes->scales[2 * g + 1][lane] << 4);
}
INLINE void low_bytes(uint8_t *to, const uint16_t *points, int n) {
    for (int v = 0; v < n; v++) to[v] = (uint8_t)points[v];
}
/* The `bits` bits above the low byte of n points. */
INLINE void pack_high(uint8_t *to, const uint16_t *points, int n, int bits) {
    for (int v = 0; v < n; v += 8 / bits) {
        int byte = 0;
        for (int k = 0; k < 8 / bits; k++) byte |= points[v + k] >> 8 << k * bits;
        to[v * bits / 8] = (uint8_t)byte;
    }
}

static void quantize_iq2_xxs(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq2_xxs, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq2_xxs *block = (block_iq2_xxs *)blocks + lane;
        block->d = (uint16_t)codes.d[lane];
        for (int g = 0; g < 8; g++) {
            low_bytes(block->groups[g].points, codes.points[lane] + 4 * g, 4);
            block->groups[g].signs = signs_and_scale(&codes, lane, g);
        }
    }
}

static void quantize_iq2_xs(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq2_xs, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq2_xs *block = (block_iq2_xs *)blocks + lane;
        block->d = (uint16_t)codes.d[lane];
        for (int v = 0; v < 32; v++)
            block->q[v] = (uint16_t)(codes.points[lane][v] | (codes.signs[lane][v] & 127) << 9);
        for (int g = 0; g < 8; g++) block->scales[g] = scale_pair(&codes, lane, g);
    }
}

static void quantize_iq2_s(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq2_s, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq2_s *block = (block_iq2_s *)blocks + lane;
        block->d = (uint16_t)codes.d[lane];
        low_bytes(block->points, codes.points[lane], 32);
        pack_high(block->high, codes.points[lane], 32, 2);
        memcpy(block->signs, codes.signs[lane], 32);
        for (int g = 0; g < 8; g++) block->scales[g] = scale_pair(&codes, lane, g);
    }
}

static void quantize_iq3_xxs(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq3_xxs, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq3_xxs *block = (block_iq3_xxs *)blocks + lane;
        block->d = (uint16_t)codes.d[lane];
        low_bytes(block->points, codes.points[lane], 64);
        for (int g = 0; g < 8; g++) block->signs[g] = signs_and_scale(&codes, lane, g);
    }
}

static void quantize_iq3_s(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq3_s, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq3_s *block = (block_iq3_s *)blocks + lane;
        block->d = (uint16_t)codes.d[lane];
        low_bytes(block->points, codes.points[lane], 64);
        pack_high(block->high, codes.points[lane], 64, 1);
        memcpy(block->signs, codes.signs[lane], 32);
        for (int g = 0; g < 4; g++) block->scales[g] = scale_pair(&codes, lane, g);
    }
}

static void quantize_iq1_s(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq1_s, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq1_s *block = (block_iq1_s *)blocks + lane;
        block->d = (uint16_t)codes.d[lane];
        low_bytes(block->points, codes.points[lane], 32);
        for (int g = 0; g < 8; g++) {
            int word = codes.scales[g][lane] << 12 | codes.deltas[lane][4 * g] << 15;
            for (int k = 0; k < 4; k++) word |= codes.points[lane][4 * g + k] >> 8 << 3 * k;
            block->high[g] = (uint16_t)word;
        }
    }
}

/* A word of `scales` has four scales and a nibble of d. */
static void quantize_iq1_m(cam_batch *batch, uint8_t *blocks, uint32_t n) {
    cam_grid_codes codes;
    grid_codes_of(batch, &of_iq1_m, &codes);
    for (uint32_t lane = 0; lane < n; lane++) {
        block_iq1_m *block = (block_iq1_m *)blocks + lane;
        low_bytes(block->points, codes.points[lane], 32);
        for (int v = 0; v < 32; v += 2) {
            const int a = codes.points[lane][v] >> 8 | codes.deltas[lane][v] << 3;
            const int b = codes.points[lane][v + 1] >> 8 | codes.deltas[lane][v + 1] << 3;
            block->high[v / 2] = (uint8_t)(a | b << 4);
        }
        for (int word = 0; word < 4; word++) {
            int bits = (codes.d[lane] >> 4 * word & 15) << 12;
            for (int k = 0; k < 4; k++) bits |= codes.scales[4 * word + k][lane] << 3 * k;
            block->scales[word] = (uint16_t)bits;
        }
    }
}

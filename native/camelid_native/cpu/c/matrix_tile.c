/* Product of a panel and a tile of activations: 16 outputs for each of n rows. Each pair of layout and n has
 * a function of its own, in which the layout is a compile-time constant, except for the fields in which types
 * that share a function differ.
 *
 * An output sums the blocks of its row in order, with the same operations for every n. */
#include "lanes.h"
#include "panels.h"
#include "row_pairs.h"

#if defined(CAM_ISA_PORTABLE)
#define UNROLL   /* the dot product is a loop itself: unrolled, it takes minutes to compile */
#else
#define UNROLL UNROLLED
#endif
#if defined(__clang__)
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED _Pragma("GCC unroll 1")
#endif

/* Prefetch distance in a panel, in bytes. Measured: 2 KB loses a sixth of the bandwidth, 16 KB begins to
 * lose. */
enum { AHEAD = 8192 };

/* Scale and shift of the codes of LANES rows. */
typedef struct { vf scale, shift; } cam_terms;
/* LANES rows of a block: codes, signed or below 128; terms of the first 16 columns (or of all), and of the
 * last 16 columns if those have scales of their own. */
typedef struct { vb codes[GROUPS]; cam_terms terms[2]; } cam_part;
/* Scales of LANES rows in a panel's head. */
typedef struct { vf d, m; } cam_head;

INLINE vb bits_up(vb v, int up) { return (vb)(up < 0 ? (vu)v >> -up : (vu)v << up); }

/* Unpacks the codes of LANES rows; `block` points at the first row's codes. */
INLINE void take_codes(const cam_layout layout, const uint8_t *block, vb *codes) {
    int low = 0;
    UNROLL for (int i = 0; i < GROUPS; i++) codes[i] = (vb){0};
    UNROLL for (int width = 8; width; width /= 2) {
        if (!(layout.bits & width)) continue;
        const uint8_t mask = (uint8_t)(((1u << width) - 1) << low);
        UNROLL for (int i = 0; i < GROUPS; i++)
            codes[i] |= bits_up(vb_load(block + GROUP_BYTES * (width * i / 8)), low - width * i % 8) & mask;
        block += GROUP_BYTES * width, low += width;
    }
}

INLINE void look_up_all(vb table, vb *codes) {
    UNROLL for (int i = 0; i < GROUPS; i++) codes[i] = vb_look_up(table, codes[i]);
}

INLINE cam_head take_head(const cam_layout layout, const cam_layout *type, const uint8_t *span, int slice) {
    const uint16_t *halves = (const uint16_t *)(const void *)span + LANES * slice;
    cam_head head = {{0}, {0}};
    if (n_halves[layout.scales] > 0) head.d = vf_half(halves);
    if (n_halves[layout.scales] > 1) head.m = vf_half(halves + PANEL_ROWS);
    if (layout.down) head.d *= unit_of(*type);
    return head;
}

/* Vector form of half_of_e8m0. */
INLINE vf vf_e8m0(vi e) { return (vf)chosen(e < 2, 0x00200000 * (e + 1), (e - 1) << 23); }
/* Vector form of half_of_ue4m3. The float32 exponent is 119 higher; subnormal codes stay subnormal. */
INLINE vf vf_ue4m3(vi code) {
    return (vf)((code & 127) << 20 & (code != 127)) * vf_set(float_of_bits((119 + 127) << 23));
}

/* Terms of 16 columns (or 32): `bytes` points at their s, which m or t follow. */
INLINE cam_terms take_terms(const cam_layout layout, const uint8_t *bytes, cam_head head) {
    switch (layout.scales) {
    case BY_S:
    case BY_ST: return (cam_terms){head.d * vi_float(vi_s8((const int8_t *)bytes)), {0}};
    case BY_SM: return (cam_terms){head.d * vi_float(vi_u8(bytes)),
                                   -(head.m * vi_float(vi_u8(bytes + PANEL_ROWS)))};
    case BY_SMS: return (cam_terms){head.d * vi_float(vi_u8(bytes) & 15),
                                    -(head.m * vi_float(vi_u8(bytes) >> 4))};
    case BY_E: return (cam_terms){vf_e8m0(vi_u8(bytes)), {0}};
    case BY_EE: return (cam_terms){vf_ue4m3(vi_u8(bytes)), {0}};
    default: return (cam_terms){head.d, head.m};
    }
}

/* True if the first and the last 16 columns of a block have separate scales. */
INLINE int is_halved(const cam_layout layout) {
    return layout.scales == BY_ST || layout.scales == BY_SMS || layout.scales == BY_EE;
}
INLINE int has_shift(const cam_layout layout) { return n_halves[layout.scales] == 2; }
INLINE int is_signed(const cam_layout layout) { return layout.bits == 8 || (layout.table && !layout.zero); }

INLINE cam_part take_part(const cam_layout layout, vb table, const uint8_t *block, int slice, cam_head head) {
    const uint8_t *bytes = block + code_bytes(layout) + LANES * slice;
    cam_part part;
    take_codes(layout, block + 4 * LANES * slice, part.codes);
    if (layout.table) look_up_all(table, part.codes);
    UNROLL for (int i = 0; i < 1 + is_halved(layout); i++)
        part.terms[i] = take_terms(layout, bytes + PANEL_ROWS * i, head);
    return part;
}

/* Groups per dot product: if the machine adds pairs of products in 16 bits, as many as cannot overflow. */
INLINE int groups_at_once(const cam_layout layout) {
#if defined(CAM_PAIRS)
    const int top = layout.table ? 127 : (1 << layout.bits) - 1, fit = INT16_MAX / (2 * 127 * top);
    return fit >= 8 && !is_halved(layout) ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
#else
    (void)layout;
    return 1;
#endif
}
/* sum + products of groups_at_once() groups with the same columns of a row of activations. */
INLINE vi dot_codes(const cam_layout layout, vi sum, const vb *codes, const int8_t *a) {
    if (is_signed(layout)) return dot_s8(sum, (vs)codes[0], vs_set4(a));
#if defined(CAM_PAIRS)
    vp pairs = dot_pairs(codes[0], vs_set4(a));
    UNROLL for (int g = 1; g < groups_at_once(layout); g++) pairs += dot_pairs(codes[g], vs_set4(a + 4 * g));
    return add_pairs(sum, pairs);
#else
    return dot_u7(sum, codes[0], vs_set4(a));
#endif
}
/* Initial sum that subtracts the zero from each code. */
INLINE vi first_sum(const cam_layout layout, vi minus_sum) {
    const int zero = (is_signed(layout) ? DOT_OFFSET : 0) + layout.zero;
    return zero ? minus_sum * zero : (vi){0};
}

/* sum + LANES rows of a block times one row of activations; `dots` are the integer sums. */
INLINE vf add_block(const cam_layout layout, vf sum, const cam_part *part, const vi *dots,
                    const cam_act *act) {
    const cam_terms *terms = part->terms;
    const vf scale = vf_set(act->scale);
    sum = vf_fma(vi_float(dots[0]) * scale, terms[0].scale, sum);
    if (is_halved(layout)) sum = vf_fma(vi_float(dots[1]) * scale, terms[1].scale, sum);
    if (is_halved(layout) && has_shift(layout)) {
        float first = act->scale * (float)-act->minus_first;
        float last = act->scale * (float)(act->minus_first - act->minus_sum);
        return vf_fma(terms[1].shift, vf_set(last), vf_fma(terms[0].shift, vf_set(first), sum));
    }
    return has_shift(layout) ? vf_fma(terms[0].shift, vf_set(act->moment), sum) : sum;
}

/* Rows whose dot products are interleaved to hide the latency of the accumulation. */
enum { TURNS = 4 };

INLINE void dot_rows(const cam_layout layout, const int n, const cam_part *part, const int8_t *codes,
                     const cam_act *acts, vi (*dots)[2]) {
    UNROLL for (int t = 0; t < n; t++) {
        vi whole = vi_set(acts[t].minus_sum), first = vi_set(acts[t].minus_first);
        dots[t][0] = first_sum(layout, is_halved(layout) ? first : whole);
        dots[t][1] = first_sum(layout, whole - first);
    }
#if ABREAST == 2
    if (n > 1) { dot_row_pairs(n, 1 + is_halved(layout), part->codes, codes, dots); return; }
#endif
    UNROLL for (int g = 0; g < GROUPS; g += groups_at_once(layout))
        UNROLL for (int t = 0; t < n; t++) {
            vi *dot = &dots[t][is_halved(layout) ? g / 4 : 0];
            *dot = dot_codes(layout, *dot, &part->codes[g], codes + BLOCK * t + 4 * g);
        }
}

/* sums[row][slice] += LANES rows of a block times n rows of activations. */
INLINE void block_by_rows(const cam_layout layout, const int n, const cam_part *part,
                          const uint8_t *block_acts, vf (*sums)[SLICES], const int slice) {
    const cam_act *acts = (const cam_act *)(const void *)(block_acts + BLOCK * n);
    const int turns = n < TURNS ? n : TURNS;
    UNROLL for (int t = 0; t < n; t += turns) {
        vi dots[TURNS][2];
        dot_rows(layout, turns, part, (const int8_t *)block_acts + BLOCK * t, acts + t, dots);
        UNROLL for (int i = 0; i < turns; i++)
            sums[t + i][slice] = add_block(layout, sums[t + i][slice], part, dots[i], &acts[t + i]);
    }
}

INLINE void store_sums(const int n, vf (*sums)[SLICES], float *out) {
    UNROLL for (int t = 0; t < n; t++)
        UNROLL for (int s = 0; s < SLICES; s++) vf_store(out + PANEL_ROWS * t + LANES * s, sums[t][s]);
}

/* `layout` is a compile-time constant; `type` supplies the fields that are not: span, table, down. */
INLINE void codes_by_tile(const cam_layout layout, const cam_layout *type, const int n, const uint8_t *panel,
                          const uint8_t *acts, uint32_t cols, float *out) {
    vf sums[TILE][SLICES] = {{{0}}};
    const vb table = layout.table ? vb_set16(tables[type->table]) + (uint8_t)layout.zero : (vb){0};
    for (uint32_t c = 0; c < cols; c += BLOCK * type->span) {
        cam_head heads[SLICES];
        UNROLL for (int s = 0; s < SLICES; s++) heads[s] = take_head(layout, type, panel, s);
        panel += head_bytes(layout);
        ROLLED for (uint32_t b = 0; b < type->span; b++) {
            for (uint32_t i = 0; i < span_bytes(layout) / layout.span; i += CACHE_LINE)
                __builtin_prefetch(panel + AHEAD + i);
            UNROLL for (int s = 0; s < SLICES; s++) {
                cam_part part = take_part(layout, table, panel, s, heads[s]);
#if ABREAST == 2
                if (n > 1) join_groups(part.codes);
#endif
                block_by_rows(layout, n, &part, acts, sums, s);
            }
            panel += block_bytes(layout), acts += n * ACT_BYTES;
        }
    }
    store_sums(n, sums, out);
}

/* ---- Matrices of floats. Even and odd steps have separate sums, added at the end */

/* Columns per step: two for bf16 if the machine multiplies pairs, else one. */
INLINE uint32_t step_cols(const uint32_t type) {
#if defined(CAM_BFLOAT_PAIRS)
    return type == TYPE_bf16 ? 2 : 1;
#else
    (void)type;
    return 1;
#endif
}

/* Loads LANES rows of `cols` columns, at most the columns of a step. */
INLINE vf take_floats(const uint32_t type, const uint32_t cols, const uint8_t *at, int slice) {
    const uint16_t *halves = (const uint16_t *)(const void *)at + LANES * slice;
    if (type == TYPE_f32) return vf_load((const float *)(const void *)at + LANES * slice);
    if (type == TYPE_f16) return vf_half(halves);
#if defined(CAM_BFLOAT_PAIRS)
    return (vf)(cols == 2 ? vi_pairs(halves) : vi_u16(halves));
#else
    (void)cols;
    return vf_bfloat(halves);
#endif
}

INLINE vf add_products(const uint32_t type, vf sum, vf weights, const float *act) {
#if defined(CAM_BFLOAT_PAIRS)
    int32_t pair;
    memcpy(&pair, act, sizeof pair);
    if (type == TYPE_bf16) return dot_bfloats(sum, (vi)weights, vi_set(pair));
#endif
    (void)type;
    return vf_fma(vf_set(*act), weights, sum);
}

INLINE void step_by_rows(const uint32_t type, const uint32_t cols, const int n, const uint8_t *at,
                         const float *acts, vf (*sums)[SLICES]) {
    UNROLL for (int s = 0; s < SLICES; s++) {
        vf weights = take_floats(type, cols, at, s);
        UNROLL for (int t = 0; t < n; t++) sums[t][s] = add_products(type, sums[t][s], weights, &acts[t]);
    }
}

INLINE void floats_by_tile(const uint32_t type, const int n, const uint8_t *panel, const uint8_t *tile,
                           uint32_t cols, float *out) {
    const uint32_t width = step_cols(type), bytes = width * PANEL_ROWS * layouts[type].stored;
    const float *acts = (const float *)(const void *)tile;
    vf sums[2][FLOAT_TILE][SLICES] = {{{{0}}}};
    for (; cols >= 2 * width; cols -= 2 * width, panel += 2 * bytes, acts += 2 * n) {
        __builtin_prefetch(panel + AHEAD);
        if (2 * bytes > CACHE_LINE) __builtin_prefetch(panel + AHEAD + CACHE_LINE);
        step_by_rows(type, width, n, panel, acts, sums[0]);
        step_by_rows(type, width, n, panel + bytes, acts + n, sums[1]);
    }
    if (cols >= width) step_by_rows(type, width, n, panel, acts, sums[0]);
    if (cols > width) panel += bytes, acts += n;
    if (cols % width) step_by_rows(type, 1, n, panel, acts, sums[1]);
    UNROLL for (int t = 0; t < n; t++)
        UNROLL for (int s = 0; s < SLICES; s++) sums[0][t][s] += sums[1][t][s];
    store_sums(n, sums[0], out);
}

/* ---- One function per layout; n, the rows of the tile, is a power of two */

/* out [n, 16] = the panel's rows times each of n rows of activations. */
typedef void cam_product(const cam_layout *type, const uint8_t *panel, const uint8_t *acts, uint32_t cols,
                         uint32_t n, float *out);

#define CAM_AT_WIDTH(tile, width, top)                                                     \
    case width: if (width <= top) tile(width <= top ? width : 1); break;
#define CAM_BY_WIDTH(tile, top)                                                            \
    switch (n) {                                                                           \
        CAM_AT_WIDTH(tile, 1, top) CAM_AT_WIDTH(tile, 2, top) CAM_AT_WIDTH(tile, 4, top)   \
        CAM_AT_WIDTH(tile, 8, top) CAM_AT_WIDTH(tile, 16, top)                             \
    }
#define CAM_CODES(width) codes_by_tile(layouts[id], &layouts[id], width, panel, acts, cols, out)
#define CAM_SHARED(width) codes_by_tile(layouts[id], type, width, panel, acts, cols, out)
#define CAM_FLOATS(width) floats_by_tile(id, width, panel, acts, cols, out)
#define CAM_PRODUCT(name, number, by_width)                                                \
    static void product_##name(const cam_layout *type, const uint8_t *panel,               \
                               const uint8_t *acts, uint32_t cols, uint32_t n, float *out) { \
        enum { id = number };                                                              \
        (void)type;                                                                        \
        by_width                                                                           \
    }
#define CAM_OF_CODES(name, number, ...) CAM_PRODUCT(name, number, CAM_BY_WIDTH(CAM_CODES, TILE))
#define CAM_OF_FLOATS(name, number, ...) CAM_PRODUCT(name, number, CAM_BY_WIDTH(CAM_FLOATS, FLOAT_TILE))
CAM_OWN_PANELS(CAM_OF_CODES)
CAM_FLOAT_PANELS(CAM_OF_FLOATS)
CAM_PRODUCT(table, TYPE_iq2_xxs, CAM_BY_WIDTH(CAM_SHARED, TILE))
CAM_PRODUCT(tiny, TYPE_tq2_0, CAM_BY_WIDTH(CAM_SHARED, TILE))

static cam_product *const products[N_TYPES] = {
#define CAM_OWN(name, id, ...) [id] = product_##name,
#define CAM_TABLE(name, id, ...) [id] = product_table,
#define CAM_TINY(name, id, ...) [id] = product_tiny,
    CAM_OWN_PANELS(CAM_OWN) CAM_FLOAT_PANELS(CAM_OWN) CAM_TABLE_PANELS(CAM_TABLE) CAM_TINY_PANELS(CAM_TINY)
#undef CAM_OWN
#undef CAM_TABLE
#undef CAM_TINY
};

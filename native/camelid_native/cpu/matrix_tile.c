/* A panel by a tile of activations: 16 outputs of each of n rows. There is a function for each type and n, in
 * which all that a layout says is known to the compiler.
 *
 * An output is summed over the blocks of its row in their order, with the same operations whatever n is. */
#include "lanes.h"
#include "panels.h"

#if defined(CAM_ISA_PORTABLE)
#define UNROLL   /* the dot product is a loop itself: unrolled, it would take minutes to compile */
#else
#define UNROLL UNROLLED
#endif
#if defined(__clang__)
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED _Pragma("GCC unroll 1")
#endif

/* How far ahead of its use a panel's stream is asked for. Measured: 2 KB lose a sixth of the bandwidth, 16 KB
 * begin to lose again. */
enum { AHEAD = 8192 };

/* LANES rows of a block. Scales and shifts are those of the first and last 16 columns. */
typedef struct { vb codes[GROUPS]; vf scale[2], shift[2]; } cam_part;
/* LANES rows of a head. */
typedef struct { vf d, m; } cam_head;

INLINE vb bits_up(vb v, int up) { return (vb)(up < 0 ? (vu)v >> -up : (vu)v << up); }

/* `block` begins at the first of the rows wanted. */
INLINE void take_codes(const cam_layout layout, const uint8_t *block, vb *codes) {
    UNROLL for (int i = 0; i < GROUPS; i++) {
        if (layout.bits == 8) codes[i] = vb_load(block + GROUP_BYTES * i);
        if (layout.bits < 8 && i < 4) {
            vb both = vb_load(block + GROUP_BYTES * i);
            codes[i] = both & 15;
            codes[i + 4] = bits_up(both, -4) & 15;
        }
    }
    const int width = layout.bits - 4;
    const uint8_t mask = (uint8_t)(((1u << width) - 1) << 4);
    UNROLL for (int i = 0; i < GROUPS; i++) {
        if (width == 0 || width == 4) continue;
        codes[i] |= bits_up(vb_load(block + GROUP_BYTES * (4 + width * i / 8)), 4 - width * i % 8) & mask;
    }
}

INLINE cam_head take_head(const cam_layout layout, const uint8_t *span, int slice) {
    const uint16_t *halves = (const uint16_t *)(const void *)span + LANES * slice;
    cam_head head = {{0}, {0}};
    if (layout.halves > 0) head.d = vf_half(halves);
    if (layout.halves > 1) head.m = vf_half(halves + PANEL_ROWS);
    return head;
}

INLINE cam_part take_part(const cam_layout layout, const uint8_t *block, int slice, cam_head head) {
    const uint8_t *bytes = block + code_bytes(layout) + LANES * slice;
    const float *floats = (const float *)(const void *)(block + code_bytes(layout)) + LANES * slice;
    cam_part part = {.scale = {head.d, head.d}, .shift = {head.m, head.m}};
    take_codes(layout, block + 4 * LANES * slice, part.codes);
    if (layout.bytes && layout.halves == 2) {
        part.scale[0] = head.d * vi_float(vi_u8(bytes));
        part.shift[0] = -(head.m * vi_float(vi_u8(bytes + PANEL_ROWS)));
    }
    if (layout.bytes && layout.halves == 1) {
        part.scale[0] = head.d * vi_float(vi_s8((const int8_t *)bytes));
        part.scale[1] = head.d * vi_float(vi_s8((const int8_t *)bytes + PANEL_ROWS));
    }
    for (int i = 0; i < 2 && layout.floats; i++) part.scale[i] = vf_load(floats + PANEL_ROWS * i);
    for (int i = 0; i < 2 && layout.floats == 4; i++) part.shift[i] = vf_load(floats + PANEL_ROWS * (2 + i));
    return part;
}

/* Groups whose products a sum takes at once: where pairs of products are cheap to add in 16 bits, as many as
 * do not overflow there. */
INLINE int groups_at_once(const cam_layout layout) {
#if defined(CAM_PAIRS)
    return layout.bits == 8 ? 1 : layout.bits == 4 ? 8 : layout.bits == 5 ? 4 : 2;
#else
    (void)layout;
    return 1;
#endif
}
/* sum + the products of these groups with as many columns of a row. */
INLINE vi dot_codes(const cam_layout layout, vi sum, const vb *codes, const int8_t *a) {
    if (layout.bits == 8) return dot_s8(sum, (vs)codes[0], vs_set4(a));
#if defined(CAM_PAIRS)
    vp pairs = dot_pairs(codes[0], vs_set4(a));
    UNROLL for (int g = 1; g < groups_at_once(layout); g++) pairs += dot_pairs(codes[g], vs_set4(a + 4 * g));
    return add_pairs(sum, pairs);
#else
    return dot_u7(sum, codes[0], vs_set4(a));
#endif
}
/* What a sum begins with, so that in the end each code counts without its offset. */
INLINE vi first_sum(const cam_layout layout, vi minus_sum) {
    if (layout.bits == 8) return DOT_OFFSET ? minus_sum * DOT_OFFSET : (vi){0};
    return layout.shift ? minus_sum << layout.shift : (vi){0};
}
/* Whether the first and the last 16 columns have scales of their own. */
INLINE int is_halved(const cam_layout layout) {
    return layout.floats || (layout.bytes && layout.halves == 1);
}
INLINE int has_shift(const cam_layout layout) { return layout.halves == 2 || layout.floats == 4; }

/* sums + LANES rows of a block by one row of activations, the integer sums of which are `dots`. */
INLINE vf add_block(const cam_layout layout, vf sum, const cam_part *part, const vi *dots,
                    const cam_act *act) {
    const vf scale = vf_set(act->scale);
    sum = vf_fma(vi_float(dots[0]) * scale, part->scale[0], sum);
    if (is_halved(layout)) sum = vf_fma(vi_float(dots[1]) * scale, part->scale[1], sum);
    if (layout.floats == 4) {
        float first = act->scale * (float)-act->minus_first;
        float last = act->scale * (float)(act->minus_first - act->minus_sum);
        return vf_fma(part->shift[1], vf_set(last), vf_fma(part->shift[0], vf_set(first), sum));
    }
    return has_shift(layout) ? vf_fma(part->shift[0], vf_set(act->moment), sum) : sum;
}

/* Rows at a time whose dot products take turns, as each waits for its own last one. */
enum { TURNS = 4 };

INLINE void dot_rows(const cam_layout layout, const int n, const cam_part *part, const int8_t *codes,
                     const cam_act *acts, vi (*dots)[2]) {
    UNROLL for (int t = 0; t < n; t++) {
        vi whole = vi_set(acts[t].minus_sum), first = vi_set(acts[t].minus_first);
        dots[t][0] = first_sum(layout, is_halved(layout) ? first : whole);
        dots[t][1] = first_sum(layout, whole - first);
    }
    UNROLL for (int g = 0; g < GROUPS; g += groups_at_once(layout))
        UNROLL for (int t = 0; t < n; t++) {
            vi *dot = &dots[t][is_halved(layout) ? g / 4 : 0];
            *dot = dot_codes(layout, *dot, &part->codes[g], codes + BLOCK * t + 4 * g);
        }
}

/* sums[row][slice] += LANES rows of a block by n rows of activations. */
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

INLINE void codes_by_tile(const cam_layout layout, const int n, const uint8_t *panel, const uint8_t *acts,
                          uint32_t cols, float *out) {
    vf sums[TILE][SLICES] = {{{0}}};
    for (uint32_t c = 0; c < cols; c += span_cols(layout)) {
        cam_head heads[SLICES];
        UNROLL for (int s = 0; s < SLICES; s++) heads[s] = take_head(layout, panel, s);
        panel += head_bytes(layout);
        ROLLED for (uint32_t b = 0; b < layout.span; b++) {
            for (uint32_t i = 0; i < span_bytes(layout) / layout.span; i += CACHE_LINE)
                __builtin_prefetch(panel + AHEAD + i);
            UNROLL for (int s = 0; s < SLICES; s++) {
                cam_part part = take_part(layout, panel, s, heads[s]);
                block_by_rows(layout, n, &part, acts, sums, s);
            }
            panel += block_bytes(layout), acts += n * ACT_BYTES;
        }
    }
    store_sums(n, sums, out);
}

/* ---- Matrices of floats: every second column adds to a sum of its own, and both are added in the end */

INLINE vf take_floats(const uint32_t type, const uint8_t *column, int slice) {
    const uint16_t *halves = (const uint16_t *)(const void *)column + LANES * slice;
    if (type == TYPE_f32) return vf_load((const float *)(const void *)column + LANES * slice);
    return type == TYPE_f16 ? vf_half(halves) : vf_bfloat(halves);
}

INLINE void column_by_rows(const uint32_t type, const int n, const uint8_t *column, const float *acts,
                           vf (*sums)[SLICES]) {
    UNROLL for (int s = 0; s < SLICES; s++) {
        vf weights = take_floats(type, column, s);
        UNROLL for (int t = 0; t < n; t++) sums[t][s] = vf_fma(vf_set(acts[t]), weights, sums[t][s]);
    }
}

INLINE void floats_by_tile(const uint32_t type, const int n, const uint8_t *panel, const uint8_t *tile,
                           uint32_t cols, float *out) {
    const uint32_t bytes = span_bytes(layouts[type]);
    const float *acts = (const float *)(const void *)tile;
    vf sums[2][FLOAT_TILE][SLICES] = {{{{0}}}};
    for (uint32_t c = 0; c + 1 < cols; c += 2, panel += 2 * bytes, acts += 2 * n) {
        __builtin_prefetch(panel + AHEAD);
        if (2 * bytes > CACHE_LINE) __builtin_prefetch(panel + AHEAD + CACHE_LINE);
        column_by_rows(type, n, panel, acts, sums[0]);
        column_by_rows(type, n, panel + bytes, acts + n, sums[1]);
    }
    if (cols % 2) column_by_rows(type, n, panel, acts, sums[0]);
    UNROLL for (int t = 0; t < n; t++)
        UNROLL for (int s = 0; s < SLICES; s++) sums[0][t][s] += sums[1][t][s];
    store_sums(n, sums[0], out);
}

/* ---- One function for each type: the tile of n rows, a power of two */

/* out [n, 16] = the panel's rows by each of n rows of activations. */
typedef void cam_product(const uint8_t *panel, const uint8_t *acts, uint32_t cols, uint32_t n, float *out);

#define CAM_AT_WIDTH(tile, width, top)                                                     \
    case width: if (width <= top) tile(width <= top ? width : 1); break;
#define CAM_BY_WIDTH(tile, top)                                                            \
    switch (n) {                                                                           \
        CAM_AT_WIDTH(tile, 1, top) CAM_AT_WIDTH(tile, 2, top) CAM_AT_WIDTH(tile, 4, top)   \
        CAM_AT_WIDTH(tile, 8, top) CAM_AT_WIDTH(tile, 16, top)                             \
    }
#define CAM_CODES(width) codes_by_tile(layouts[type], width, panel, acts, cols, out)
#define CAM_FLOATS(width) floats_by_tile(type, width, panel, acts, cols, out)
#define CAM_PRODUCT(name, id, by_width)                                                    \
    static void product_##name(const uint8_t *panel, const uint8_t *acts, uint32_t cols,   \
                               uint32_t n, float *out) {                                   \
        enum { type = id };                                                                \
        by_width                                                                           \
    }
#define CAM_OF_CODES(name, id, ...) CAM_PRODUCT(name, id, CAM_BY_WIDTH(CAM_CODES, TILE))
#define CAM_OF_FLOATS(name, id, ...) CAM_PRODUCT(name, id, CAM_BY_WIDTH(CAM_FLOATS, FLOAT_TILE))
CAM_OWN_PANELS(CAM_OF_CODES)
CAM_OF_CODES(bytes, TYPE_iq4_nl)  /* of a span of 1, which fits all of them */
CAM_FLOAT_PANELS(CAM_OF_FLOATS)

static cam_product *const products[N_TYPES] = {
#define CAM_OWN(name, id, ...) [id] = product_##name,
#define CAM_BYTES(name, id, ...) [id] = product_bytes,
    CAM_OWN_PANELS(CAM_OWN) CAM_FLOAT_PANELS(CAM_OWN) CAM_BYTE_PANELS(CAM_BYTES)
#undef CAM_OWN
#undef CAM_BYTES
};

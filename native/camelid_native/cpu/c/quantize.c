/* Activations in the layout of matrix products: tiles of a few rows, so that a product reads one stream.
 *
 * For quantized matrices, activations are int8 in blocks of 32 columns. A block of a tile is the 32 codes of
 * each row (with ABREAST 2, eight codes of one row alternate with eight of the next), then each row's
 * cam_act. For float matrices, a tile stores column by column, one float32 per row. For bf16 matrices the
 * values are rounded to bf16; if the machine multiplies pairs of columns, they are stored in pairs. */
#include "codecs.h"
#include "panels.h"

/* Rows of the widest tile: as many sums as fit in the registers beside the codes of a block. */
#if LANES == 16
enum { TILE = 16, FLOAT_TILE = 8 };
#elif defined(CAM_ISA_PORTABLE)
enum { TILE = 2, FLOAT_TILE = 2 };   /* wider tiles are no faster */
#elif LANES == 4
enum { TILE = 8, FLOAT_TILE = 4 };   /* a tenth faster than 4 in WASM */
#else
enum { TILE = 4, FLOAT_TILE = 4 };   /* 8 is no faster with AVX2 */
#endif

typedef struct {
    float scale;          /* value = scale * code */
    float moment;         /* scale * (sum of the codes), for a matrix with shifts */
    int32_t minus_sum;    /* -(sum of the codes) */
    int32_t minus_first;  /* -(sum of the first 16 codes) */
} cam_act;

enum { ACT_BYTES = BLOCK + sizeof(cam_act) };

/* A block whose largest magnitude is below this limit counts as zeros; 127 / LEAST_TOP is still finite. */
static const float LEAST_TOP = 1e-36f;

typedef int8_t v_codes __attribute__((vector_size(LANES)));
typedef int32_t v_four __attribute__((vector_size(16)));

/* Rounds floats to codes, to nearest, ties to even. */
INLINE void store_codes(int8_t *codes, vf real) {
    v_codes low = __builtin_convertvector(vi_round(real), v_codes);
    memcpy(codes, &low, sizeof low);
}

/* Largest lane of v; all lanes are >= 0. */
INLINE int32_t top_lane(vi v) {
    v_four parts[LANES / 4], top = {0};
    memcpy(parts, &v, sizeof parts);
    for (uint32_t i = 0; i < LANES / 4; i++) {
        v_four more = parts[i] > top;
        top = (parts[i] & more) | (top & ~more);
    }
    int32_t low = top[0] > top[1] ? top[0] : top[1], high = top[2] > top[3] ? top[2] : top[3];
    return low > high ? low : high;
}

/* Largest magnitude of a block. The bits of magnitudes sort like the floats, with NaN above all. */
INLINE float block_top(const float *x) {
    vi top = {0};
    for (uint32_t i = 0; i < BLOCK; i += LANES) {
        vi size = (vi)vf_load(x + i) & 0x7FFFFFFF;
        top = (vi)vf_pick(size > top, (vf)size, (vf)top);
    }
    return float_of_bits((uint32_t)top_lane(top));
}

/* Sum of 16 codes in two 8-byte words: codes are raised to 0..255, added in pairs, then across pairs. */
INLINE int32_t sum_codes(const int8_t *codes, uint32_t apart) {
    const uint64_t low_bytes = 0x00FF00FF00FF00FF, ones = 0x0001000100010001;
    uint64_t words[2], pairs = 0;
    for (int i = 0; i < 2; i++) memcpy(&words[i], codes + apart * i, sizeof words[i]);
    for (int i = 0; i < 2; i++) {
        uint64_t raised = words[i] ^ 0x8080808080808080;
        pairs += (raised & low_bytes) + (raised >> 8 & low_bytes);
    }
    return (int32_t)(pairs * ones >> 48) - 16 * 128;
}

/* Quantizes a block with scale = largest magnitude / 127, to nearest, ties to even. An infinity or NaN in x
 * becomes the scale. Groups of eight codes are `apart` bytes apart. */
INLINE void quantize_block(const float *x, int8_t *codes, uint32_t apart, cam_act *act) {
    const float top = block_top(x), scale = top / 127.0f, by = top > LEAST_TOP ? 127.0f / top : 0.0f;
    for (uint32_t i = 0; i < BLOCK; i += LANES)
        store_codes(codes + i / 8 * apart + i % 8, vf_load(x + i) * by);
    const int32_t first = sum_codes(codes, apart), sum = first + sum_codes(codes + 2 * apart, apart);
    *act = (cam_act){scale, scale * (float)sum, -sum, -first};
}

/* Kinds of activations, by the matrix's type. */
enum { ACTS_CODES, ACTS_FLOATS, ACTS_BFLOATS };
INLINE int acts_for(uint32_t type) {
    return layouts[type].span ? ACTS_CODES : type == TYPE_bf16 ? ACTS_BFLOATS : ACTS_FLOATS;
}

/* Rows of the next tile if `left` rows remain: a power of two. */
INLINE uint32_t tile_rows(const cam_layout layout, uint32_t left) {
    uint32_t n = layout.span ? TILE : FLOAT_TILE;
    while (n > left) n /= 2;
    return n;
}
/* Bytes of a row of activations; bf16 pairs leave half of it unused. */
INLINE uint64_t act_bytes(const cam_layout layout, uint32_t cols) {
    return layout.span ? (uint64_t)cols / BLOCK * ACT_BYTES : 4 * (uint64_t)cols;
}

/* Offset of a row's codes in a block. */
INLINE uint32_t codes_start(uint32_t row, uint32_t abreast) {
    return BLOCK * (row - row % abreast) + 8 * (row % abreast);
}
/* place_*: write a range of blocks or columns of row `row` into a tile of n rows. */
INLINE void place_codes(const float *x, cam_range blocks, uint32_t n, uint32_t row, uint8_t *tile) {
    const uint32_t abreast = n > 1 ? ABREAST : 1;
    for (uint32_t b = blocks.start; b < blocks.end; b++) {
        uint8_t *block = tile + (uint64_t)b * n * ACT_BYTES;
        cam_act *acts = (cam_act *)(void *)(block + BLOCK * n);
        quantize_block(x + BLOCK * b, (int8_t *)block + codes_start(row, abreast), 8 * abreast, &acts[row]);
    }
}
INLINE void place_floats(const float *x, cam_range cols, uint32_t n, uint32_t row, uint8_t *tile) {
    float *to = (float *)(void *)tile + row;
    for (uint32_t c = cols.start; c < cols.end; c++) to[(uint64_t)c * n] = x[c];
}

/* Columns rounded per iteration. */
enum { SOME = 64 };

/* Writes bf16 columns from c (even) on; an odd last column is paired with a zero. */
INLINE void spread_bfloats(const uint16_t *some, uint32_t c, uint32_t end, uint32_t n, uint32_t row,
                           uint8_t *tile) {
    float *to = (float *)(void *)tile + row;
#if defined(CAM_BFLOAT_PAIRS)
    for (uint32_t i = 0; i < end - c; i += 2) memcpy(to + (uint64_t)(c + i) / 2 * n, some + i, 4);
#else
    for (uint32_t i = 0; i < end - c; i++) to[(uint64_t)(c + i) * n] = float_of_bits((uint32_t)some[i] << 16);
#endif
}
INLINE void place_bfloats(const float *x, cam_range cols, uint32_t n, uint32_t row, uint8_t *tile) {
    for (uint32_t c = cols.start, end; c < cols.end; c = end) {
        uint16_t some[SOME] = {0};
        end = c + SOME < cols.end ? c + SOME : cols.end;
        codecs[TYPE_bf16].encode(x + c, (uint8_t *)some, end - c);
        spread_bfloats(some, c, end, n, row, tile);
    }
}

INLINE void place_row(uint32_t type, const float *x, cam_range part, uint32_t n, uint32_t row,
                      uint8_t *tile) {
    switch (acts_for(type)) {
        case ACTS_CODES: place_codes(x, part, n, row, tile); break;
        case ACTS_FLOATS: place_floats(x, part, n, row, tile); break;
        case ACTS_BFLOATS: place_bfloats(x, part, n, row, tile); break;
    }
}

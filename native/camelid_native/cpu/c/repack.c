/* Packing of stored rows into panels, and decoding of a row from its panel. */
#include "lanes.h"
#include "panels.h"

/* ---- Codes as 4-byte words: the four codes of a group, or their bits in a plane */

typedef uint32_t cam_four __attribute__((vector_size(16)));
INLINE cam_four four_at(const void *p) { cam_four v; memcpy(&v, p, sizeof v); return v; }

/* Transposes a 4 x 4 matrix of words. */
INLINE void turn_four(cam_four v[4]) {
    const cam_four a = SHUFFLE(v[0], v[1], 0, 4, 1, 5);
    const cam_four b = SHUFFLE(v[2], v[3], 0, 4, 1, 5);
    const cam_four c = SHUFFLE(v[0], v[1], 2, 6, 3, 7);
    const cam_four d = SHUFFLE(v[2], v[3], 2, 6, 3, 7);
    v[0] = SHUFFLE(a, b, 0, 1, 4, 5), v[1] = SHUFFLE(a, b, 2, 3, 6, 7);
    v[2] = SHUFFLE(c, d, 0, 1, 4, 5), v[3] = SHUFFLE(c, d, 2, 3, 6, 7);
}

/* Eight words of each row of a panel, transposed. */
typedef struct { uint32_t of[GROUPS][PANEL_ROWS]; } cam_words;

/* Loads eight words from byte `at` of each row. */
INLINE void gather_words(cam_words *words, const uint8_t *const rows[PANEL_ROWS], uint64_t at) {
    for (uint32_t r = 0; r < PANEL_ROWS; r += 4)
        for (uint32_t g = 0; g < GROUPS; g += 4) {
            cam_four v[4];
            for (uint32_t i = 0; i < 4; i++) v[i] = four_at(rows[r + i] + at + 4 * g);
            turn_four(v);
            for (uint32_t i = 0; i < 4; i++) memcpy(words->of[g + i] + r, &v[i], sizeof v[i]);
        }
}

/* Mask of the low `width` bits of each byte of a word. */
INLINE uint32_t plane_mask(uint32_t width) { return 0x01010101 * ((1u << width) - 1); }

INLINE void write_codes(const cam_layout layout, const cam_words *codes, uint8_t *block) {
    uint32_t low = 0;
    for (uint32_t width = 8; width; low += layout.bits & width, width /= 2)
        for (uint32_t line = 0; line < (layout.bits & width); line++)
            for (uint32_t r = 0; r < PANEL_ROWS; r += LANES, block += sizeof(vu)) {
                vu word = {0};
                for (uint32_t i = 0, g = line * (8 / width); i < 8 / width; i++)
                    word |= ((vu)vb_load(codes->of[g + i] + r) >> low & plane_mask(width)) << width * i;
                vb_store(block, (vb)word);
            }
}

INLINE void read_codes(const cam_layout layout, int8_t *codes, const uint8_t *block, uint32_t row) {
    uint32_t words[GROUPS] = {0}, low = 0;
    for (uint32_t width = 8; width; low += layout.bits & width, width /= 2)
        for (uint32_t line = 0; line < (layout.bits & width); line++, block += GROUP_BYTES) {
            uint32_t word;
            memcpy(&word, block + 4 * row, sizeof word);
            for (uint32_t i = 0, g = line * (8 / width); i < 8 / width; i++)
                words[g + i] |= (word >> width * i & plane_mask(width)) << low;
        }
    memcpy(codes, words, sizeof words);
}

/* A span of all rows of a panel. */
typedef struct { cam_piece of[PANEL_ROWS]; } cam_pieces;

INLINE void write_span(const cam_layout layout, const cam_pieces *pieces, uint8_t *at) {
    for (uint32_t i = 0; i < n_halves[layout.scales]; i++)
        for (uint32_t r = 0; r < PANEL_ROWS; r++, at += 2) memcpy(at, &pieces->of[r].halves[i], 2);
    const uint8_t *codes[PANEL_ROWS];
    for (uint32_t r = 0; r < PANEL_ROWS; r++) codes[r] = (const uint8_t *)pieces->of[r].codes;
    for (uint32_t b = 0; b < layout.span; b++) {
        cam_words words;
        gather_words(&words, codes, BLOCK * b);
        write_codes(layout, &words, at);
        at += code_bytes(layout);
        for (uint32_t i = 0; i < n_bytes[layout.scales]; i++)
            for (uint32_t r = 0; r < PANEL_ROWS; r++) *at++ = pieces->of[r].bytes[b][i];
    }
}

INLINE void read_piece(const cam_layout layout, cam_piece *piece, const uint8_t *at, uint32_t row) {
    for (uint32_t i = 0; i < n_halves[layout.scales]; i++)
        memcpy(&piece->halves[i], at + 2 * (PANEL_ROWS * i + row), 2);
    at += head_bytes(layout);
    for (uint32_t b = 0; b < layout.span; b++, at += block_bytes(layout)) {
        const uint8_t *bytes = at + code_bytes(layout) + row;
        read_codes(layout, piece->codes + BLOCK * b, at, row);
        for (uint32_t i = 0; i < n_bytes[layout.scales]; i++) piece->bytes[b][i] = bytes[PANEL_ROWS * i];
    }
}

/* ---- Values: all arithmetic in float32, in the order of the codecs */

/* Scale and shift of 16 columns. */
typedef struct { float scale, shift; } cam_affine;

static cam_affine affine_of(const cam_layout layout, const cam_piece *piece, uint32_t b, uint32_t half) {
    const float d = half_value(piece->halves[0]) * unit_of(layout), m = half_value(piece->halves[1]);
    const uint8_t *bytes = piece->bytes[b], s = bytes[half];
    switch (layout.scales) {
    case BY_DM: return (cam_affine){d, m};
    case BY_S: return (cam_affine){d * (int8_t)bytes[0], 0};
    case BY_ST: return (cam_affine){d * (int8_t)s, 0};
    case BY_SM: return (cam_affine){d * bytes[0], -(m * bytes[1])};
    case BY_SMS: return (cam_affine){d * (s & 15), -(m * (s >> 4))};
    case BY_E: return (cam_affine){half_of_e8m0(bytes[0]), 0};
    case BY_EE: return (cam_affine){half_of_ue4m3(s), 0};
    default: return (cam_affine){d, 0};
    }
}

static void block_values(const cam_layout layout, cam_piece *piece, uint32_t b, float *values) {
    int8_t *codes = piece->codes + BLOCK * b;
    const int zero = layout.table ? 0 : layout.zero;
    if (layout.table) look_up_codes(codes, tables[layout.table], BLOCK);
    for (uint32_t i = 0; i < BLOCK; i += 16) {
        const cam_affine affine = affine_of(layout, piece, b, i / 16);
        if (n_halves[layout.scales] == 2)
            affine_codes(values + i, affine.scale, codes + i, zero, affine.shift, 16);
        else
            scaled_codes(values + i, affine.scale, codes + i, zero, 16);
    }
}

static void unpack_codes(const cam_layout layout, const uint8_t *panel, uint32_t cols, uint32_t row,
                         float *values) {
    cam_piece piece = {0};
    for (uint32_t c = 0; c < cols; c += span_cols(layout), panel += span_bytes(layout)) {
        read_piece(layout, &piece, panel, row);
        for (uint32_t b = 0; b < layout.span; b++) block_values(layout, &piece, b, values + c + BLOCK * b);
    }
}

static void unpack_floats(uint32_t type, const uint8_t *panel, uint32_t cols, uint32_t row, float *values) {
    const uint32_t each = layouts[type].stored;
    for (uint32_t c = 0; c < cols; c++)
        codecs[type].decode(panel + each * (PANEL_ROWS * (uint64_t)c + row), values + c, 1);
}

static void variant_unpack_row(uint32_t type, const uint8_t *panels, uint32_t rows, uint32_t cols,
                               uint32_t row, float *values) {
    (void)rows;
    const cam_layout layout = *layout_of(type);
    const uint8_t *panel = panels + row / PANEL_ROWS * panel_bytes(layout, cols);
    if (layout.span) unpack_codes(layout, panel, cols, row % PANEL_ROWS, values);
    else unpack_floats(type, panel, cols, row % PANEL_ROWS, values);
}

/* ---- Matrices */

/* Stored rows of a panel; rows past the matrix's last are NULL and stay zeros. */
typedef struct { const uint8_t *rows[PANEL_ROWS]; } cam_sources;

/* Packs columns of floats from `first` on: for a partial panel, and for columns beyond whole words. */
static void pack_columns(uint32_t each, const cam_sources *from, uint32_t first, uint32_t cols,
                         uint8_t *panel) {
    for (uint32_t r = 0; r < PANEL_ROWS && from->rows[r]; r++)
        for (uint32_t c = first; c < cols; c++) {
            uint8_t *to = panel + each * (PANEL_ROWS * (uint64_t)c + r);
            if (each == 4) memcpy(to, from->rows[r] + 4 * (uint64_t)c, 4);  /* constant size: no call */
            else memcpy(to, from->rows[r] + 2 * (uint64_t)c, 2);
        }
}

/* Writes columns of 2-byte values, two per word. */
INLINE void write_pairs(const cam_words *words, uint8_t *to) {
    uint16_t halves[GROUPS][2][PANEL_ROWS];
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t r = 0; r < PANEL_ROWS; r++) {
            halves[g][0][r] = (uint16_t)words->of[g][r];
            halves[g][1][r] = (uint16_t)(words->of[g][r] >> 16);
        }
    memcpy(to, halves, sizeof halves);
}

static void pack_floats(uint32_t each, const cam_sources *from, uint32_t cols, uint8_t *panel) {
    const int is_full = from->rows[PANEL_ROWS - 1] != NULL;
    const uint32_t at_once = 4 * GROUPS / each, n_whole = is_full ? cols / at_once : 0;
    if (!is_full) memset(panel, 0, each * PANEL_ROWS * (uint64_t)cols);
    for (uint32_t i = 0; i < n_whole; i++) {
        cam_words words;
        gather_words(&words, from->rows, 4 * GROUPS * (uint64_t)i);
        uint8_t *to = panel + sizeof words * (uint64_t)i;
        if (each == 4) memcpy(to, &words, sizeof words);
        else write_pairs(&words, to);
    }
    pack_columns(each, from, at_once * n_whole, cols, panel);
}

static void pack_codes(const cam_layout layout, cam_fetch *fetch, const cam_sources *from, uint32_t cols,
                       uint8_t *panel) {
    cam_pieces pieces = {0};   /* a fetch writes all fields of its type */
    for (uint32_t s = 0; s < cols / span_cols(layout); s++, panel += span_bytes(layout)) {
        for (uint32_t r = 0; r < PANEL_ROWS && from->rows[r]; r++)
            fetch(from->rows[r] + (uint64_t)s * layout.stored, &pieces.of[r]);
        write_span(layout, &pieces, panel);
    }
}

static void variant_pack(uint32_t type, const uint8_t *stored, const uint32_t *order, uint32_t rows,
                         uint32_t cols, uint32_t first, uint32_t end, uint32_t every, uint8_t *panels) {
    const cam_layout layout = *layout_of(type);
    const uint64_t bytes = panel_bytes(layout, cols);
    const uint64_t row_bytes = (uint64_t)(cols / span_cols(layout)) * layout.stored;
    for (uint32_t p = first; p < end; p++) {
        cam_sources from = {{0}};
        for (uint32_t r = 0, i = PANEL_ROWS * p; r < PANEL_ROWS && i < rows; r++, i++)
            from.rows[r] = stored + (order ? order[i] : i) * row_bytes;
        uint8_t *panel = panels + (uint64_t)p * every * bytes;
        if (layout.span) pack_codes(layout, fetches[type], &from, cols, panel);
        else pack_floats(layout.stored, &from, cols, panel);
    }
}

static uint64_t variant_panel_bytes(uint32_t type, uint32_t rows, uint32_t cols) {
    const cam_layout *layout = layout_of(type);
    return layout && cols % span_cols(*layout) == 0 ? panel_bytes(*layout, cols) * n_panels(rows) : 0;
}

/* From the rows of a file to panels, and from a panel to the values of a row. */
#include "panels.h"

/* ---- A row's part of a panel, in words of 4 bytes: four codes of a group, or their bits in a plane */

typedef uint32_t cam_word __attribute__((may_alias));
INLINE cam_word *word_at(const uint8_t *group, uint32_t row) {
    return (cam_word *)(uintptr_t)(group + 4 * row);
}

/* The bits of a plane of so many, in each byte of a word. */
INLINE uint32_t plane_mask(uint32_t width) { return 0x01010101 * ((1u << width) - 1); }

INLINE void write_codes(const cam_layout layout, const int8_t *codes, uint8_t *block, uint32_t row) {
    uint32_t words[GROUPS], low = 0;
    memcpy(words, codes, sizeof words);
    for (uint32_t width = 8; width; low += layout.bits & width, width /= 2)
        for (uint32_t line = 0; line < (layout.bits & width); line++, block += GROUP_BYTES) {
            uint32_t word = 0, first = line * (8 / width);
            for (uint32_t i = 0; i < 8 / width; i++)
                word |= (words[first + i] >> low & plane_mask(width)) << width * i;
            *word_at(block, row) = word;
        }
}

INLINE void read_codes(const cam_layout layout, int8_t *codes, const uint8_t *block, uint32_t row) {
    uint32_t words[GROUPS] = {0}, low = 0;
    for (uint32_t width = 8; width; low += layout.bits & width, width /= 2)
        for (uint32_t line = 0; line < (layout.bits & width); line++, block += GROUP_BYTES) {
            const uint32_t word = *word_at(block, row), first = line * (8 / width);
            for (uint32_t i = 0; i < 8 / width; i++)
                words[first + i] |= (word >> width * i & plane_mask(width)) << low;
        }
    memcpy(codes, words, sizeof words);
}

INLINE void write_piece(const cam_layout layout, const cam_piece *piece, uint8_t *at, uint32_t row) {
    for (uint32_t i = 0; i < n_halves[layout.scales]; i++)
        memcpy(at + 2 * (PANEL_ROWS * i + row), &piece->halves[i], 2);
    at += head_bytes(layout);
    for (uint32_t b = 0; b < layout.span; b++, at += block_bytes(layout)) {
        uint8_t *bytes = at + code_bytes(layout) + row;
        write_codes(layout, piece->codes + BLOCK * b, at, row);
        for (uint32_t i = 0; i < n_bytes[layout.scales]; i++) bytes[PANEL_ROWS * i] = piece->bytes[b][i];
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

/* ---- Values: every product and sum in float32, in the order of the codecs */

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
            affine_codes(values + i, affine.scale, codes + i, affine.shift, 16);
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

/* The stored rows of a panel; one beyond the matrix's last is NULL, and stays zeros. */
typedef struct { const uint8_t *rows[PANEL_ROWS]; } cam_sources;

static void pack_floats(const cam_layout layout, const cam_sources *from, uint32_t cols, uint8_t *panel) {
    for (uint32_t r = 0; r < PANEL_ROWS; r++)
        for (uint32_t c = 0; c < cols && from->rows[r]; c++) {
            uint8_t *to = panel + layout.stored * (PANEL_ROWS * (uint64_t)c + r);
            if (layout.stored == 4) memcpy(to, from->rows[r] + 4 * (uint64_t)c, 4);
            else memcpy(to, from->rows[r] + 2 * (uint64_t)c, 2);
        }
}

static void pack_codes(const cam_layout layout, cam_fetch *fetch, const cam_sources *from, uint32_t cols,
                       uint8_t *panel) {
    cam_piece piece = {0};   /* each fetch writes all that its type has; to codes it may add bits */
    for (uint32_t s = 0; s < cols / span_cols(layout); s++, panel += span_bytes(layout))
        for (uint32_t r = 0; r < PANEL_ROWS && from->rows[r]; r++) {
            for (uint32_t b = 0; b < layout.span; b++) memset(piece.codes + BLOCK * b, 0, BLOCK);
            fetch(from->rows[r] + (uint64_t)s * layout.stored, &piece);
            write_piece(layout, &piece, panel, r);
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
        if (!from.rows[PANEL_ROWS - 1]) memset(panel, 0, bytes);
        if (layout.span) pack_codes(layout, fetches[type], &from, cols, panel);
        else pack_floats(layout, &from, cols, panel);
    }
}

static uint64_t variant_panel_bytes(uint32_t type, uint32_t rows, uint32_t cols) {
    const cam_layout *layout = layout_of(type);
    return layout && cols % span_cols(*layout) == 0 ? panel_bytes(*layout, cols) * n_panels(rows) : 0;
}

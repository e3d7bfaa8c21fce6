/* Products with matrices. */

static uint64_t variant_panel_bytes(uint32_t type, uint32_t rows, uint32_t cols) {
    return (void)type, (void)rows, (void)cols, 0;
}

static void variant_pack(uint32_t type, const uint8_t *stored, const uint32_t *order, uint32_t rows,
                         uint32_t cols, uint32_t first, uint32_t end, uint8_t *panels) {
    (void)type, (void)stored, (void)order, (void)rows, (void)cols, (void)first, (void)end, (void)panels;
}

static void variant_unpack_row(uint32_t type, const uint8_t *panels, uint32_t rows, uint32_t cols, uint32_t row,
                               float *values) {
    (void)type, (void)panels, (void)rows, (void)cols, (void)row, (void)values;
}

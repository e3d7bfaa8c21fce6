static uint32_t variant_decode(uint32_t type, const uint8_t *blocks, float *values, uint64_t n) {
    return (void)type, (void)blocks, (void)values, (void)n, 1;
}
static uint32_t variant_encode(uint32_t type, const float *values, uint8_t *blocks, uint64_t n) {
    return (void)type, (void)blocks, (void)values, (void)n, 1;
}

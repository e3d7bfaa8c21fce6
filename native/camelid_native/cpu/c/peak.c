/* Peak int8 throughput of this processor, the reference for measured speeds. */

enum { PEAK_SUMS = 8 };  /* independent accumulators, to hide latency */

/* Computes PEAK_SUMS * 4 * LANES int8 products in registers, n times. Returning the sum keeps the compiler
 * from removing the products. */
static uint32_t variant_multiply(uint32_t n) {
    vi sums[PEAK_SUMS] = {{0}};
    vb w = vb_set((uint8_t)(n & 1));
    vs a = (vs)vb_set(1);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < PEAK_SUMS; k++) sums[k] = dot_u7(sums[k], w, a);
        w ^= 1;
    }
    vi total = {0};
    for (uint32_t k = 0; k < PEAK_SUMS; k++) total += sums[k];
    return (uint32_t)total[0];
}

/* The most that this processor multiplies: a yardstick beside measured speeds. */

enum { PEAK_SUMS = 8 };  /* that depend on nothing but themselves, so that one need not wait for the other */

/* Makes PEAK_SUMS * 4 * LANES products of int8 in registers, n times; what they sum to keeps them from being
 * left out. */
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

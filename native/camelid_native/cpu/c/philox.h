/* Noise of a draw: Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed. */
#pragma once
#include "precise.h"

typedef struct { uint32_t seed_low, seed_high, position, choice; } noise_key;

/* First output word. The counter is (token id, position, choice, purpose), with purpose 0 for draws, so that
 * a draw does not depend on order or batch. Compilers vectorize a loop over ids. */
INLINE uint32_t philox(uint32_t id, noise_key key) {
    uint32_t c[4] = {id, key.position, key.choice, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key.seed_low, c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key.seed_high, c[3] = (uint32_t)a;
        key.seed_low += 0x9E3779B9u, key.seed_high += 0xBB67AE85u;
    }
    return c[0];
}

/* Gumbel noise -log(-log u) of a uniform u of 24 bits: from -2.86 to 17.33. */
static double gumbel(uint32_t id, noise_key key) {
    double u = ((double)(philox(id, key) >> 8) + 0.5) * 0x1p-24;
    return -log_double(-log_double(u));
}

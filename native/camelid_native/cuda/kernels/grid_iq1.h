/* grid_iq1: the codebook of iq1_s and iq1_m, whose bytes are 8 * (value + 1). With a delta of 1/8 or -1/8, the codes
 * are 8 * (value + delta) + 9. */
#pragma once
#include "bits.h"

DEVICE void put_point(const Matrix &m, u32 entry, u32 is_minus, int p, Codes &c) {
    const uint2 both = load8(m.book + 8 * entry);
    const u32 up = is_minus ? 0 : 0x02020202u;
    c.words[2 * p] = both.x + up;
    c.words[2 * p + 1] = both.y + up;
}
/* Scale from a factor and a code of 3 bits. */
DEVICE float odd_scale(float factor, u32 code) { return factor * (float)(2 * (code & 7u) + 1) * 0.125f; }

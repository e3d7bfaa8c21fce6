/* scales_k: scale and zero of a group of q4_k and q5_k. */
#pragma once
#include "bits.h"

/* `factors` are two halves, `scales` the bytes of scale and minimum. */
DEVICE void read_scales(u32 factors, u32 scales, Codes &c) {
    c.scales[0] = float_of_half(factors & 0xFFFFu) * (float)byte_of(scales, 0);
    c.zeros[0] = -(float_of_half(factors >> 16) * (float)byte_of(scales, 1));
}

/* codec tq2_0: 64 bytes of 2-bit codes | factor. A byte has codes 32 columns apart. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 packed[8], scale; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    load_32(field_of(m, 0, block / 8, 64) + 32 * (s / 4), w.packed);
    w.scale = short_at(field_of(m, 1, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    take_fields(w.packed, 2 * (s % 4), 0x03030303u, c.words);
    c.scales[0] = float_of_half(w.scale);
    return c;
}

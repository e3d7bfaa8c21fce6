/* codec q8_0: codes | scale. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 codes[8], scale; };

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_32(field_of(m, 0, block, 32), w.codes);
    w.scale = short_at(field_of(m, 1, block, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 8; i++) c.words[i] = w.codes[i];
    c.scales[0] = float_of_half(w.scale);
    return c;
}

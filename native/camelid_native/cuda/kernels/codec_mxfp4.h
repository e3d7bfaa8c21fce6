/* codec mxfp4: 16 bytes of nibbles | exponent. */
#pragma once
#include "tables.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 packed[4], exponent; };

/* Half of 2^(e - 127), subnormal for e = 0 and e = 1. */
DEVICE float half_of_e8m0(u32 e) { return as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.exponent = *field_of(m, 1, block, 1);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    const u32 table[4] = E2M1;
    look_up_words<4>(table, w.packed, c.words);
    c.scales[0] = half_of_e8m0(w.exponent);
    return c;
}

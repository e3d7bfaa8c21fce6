/* codec nvfp4: four groups of 8 bytes of nibbles | their scales. */
#pragma once
#include "tables.h"

enum { OFFSET = 0, SCALES = 2, HAS_ZEROS = 0 };
struct Stored { u32 packed[4], scales; };

/* Half of the E4M3 number in the low seven bits. Code 0x7F is 0, but code 0xFF is not. */
DEVICE float half_of_ue4m3(u32 code) {
    const u32 exponent = code >> 3 & 15u, mantissa = code & 7u, power = (exponent ? exponent : 1u) + 127u - 11u;
    return code == 0x7Fu ? 0.0f : (float)(exponent ? mantissa + 8 : mantissa) * as_float(power << 23);
}

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    load_words(field_of(m, 0, block, 16), w.packed);
    w.scales = short_at(field_of(m, 1, block, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    const u32 table[4] = E2M1;
    for (int h = 0; h < 2; h++) {
        look_up_words<2>(table, w.packed + 2 * h, c.words + 4 * h);
        c.scales[h] = half_of_ue4m3(byte_of(w.scales, h));
    }
    return c;
}

/* codec tq1_0: bytes of base-3 digits, as fractions of 256 | 4 of the bytes | factor. Columns 0 to 159 are five digits
 * of the first 32 bytes, then 16 columns each are a digit of the next 16 bytes, and the last 16 are four digits of the
 * last 4. */
#pragma once
#include "bits.h"

enum { OFFSET = 1, SCALES = 1, HAS_ZEROS = 0 };
struct Stored { u32 bytes[8], last, factor; };

DEVICE u32 power_of_3(int n) { return n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81; }
/* The digit of each byte behind n others, with power = 3^n. */
DEVICE u32 digits_of(u32 bytes, u32 power) {
    const u32 mask = 0x00FF00FFu, even = (bytes & mask) * power & mask, odd = (bytes >> 8 & mask) * power & mask;
    return (even * 3 >> 8 & 0x00030003u) | (odd * 3 >> 8 & 0x00030003u) << 8;
}

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const int s = (int)(block % 8);
    const u8 *p = field_of(m, 0, block / 8, 48);
    load_words(s < 5 ? p : p + 32, w.bytes);
    load_words(s < 5 ? p + 16 : p + 32, w.bytes + 4);
    w.last = word_at(field_of(m, 1, block / 8, 4), 0);
    w.factor = short_at(field_of(m, 2, block / 8, 2), 0);
    return w;
}

DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 8; i++) {
        const int digit = s < 5 ? s : 2 * (s - 5) + i / 4;
        c.words[i] = digit == 5 ? digits_of(w.last, power_of_3(i % 4)) : digits_of(w.bytes[i], power_of_3(digit));
    }
    c.scales[0] = float_of_half(w.factor);
    return c;
}

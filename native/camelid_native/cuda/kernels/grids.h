/* grids: codebooks of the IQ types in the matrix's book, whose bytes are 127 - magnitude. */
#pragma once
#include "bits.h"

/* Eight signs from seven; the eighth makes the number of minus signs even. */
DEVICE u32 even_signs(u32 seven) {
    u32 folded = seven ^ seven >> 4;
    folded ^= folded >> 2;
    return seven | ((folded ^ folded >> 1) & 1) << 7;
}
/* Four codes from four bytes of the book and the lowest four bits of `signs`. Magnitudes are at least 1. */
DEVICE u32 signed_four(u32 entry, u32 signs) {
    const u32 minus = spread_bits(signs);
    return (entry ^ (0x7F7F7F7Fu ^ minus * 255u)) + minus;
}
/* The eight codes of point p, from an entry of eight bytes. */
DEVICE void put_point(const Matrix &m, u32 entry, u32 signs, int p, Codes &c) {
    const uint2 both = load8(m.book + 8 * entry);
    c.words[2 * p] = signed_four(both.x, signs);
    c.words[2 * p + 1] = signed_four(both.y, signs >> 4);
}
/* The eight codes of two entries of four bytes. */
DEVICE void put_pair(const Matrix &m, u32 first, u32 second, u32 signs, int p, Codes &c) {
    c.words[2 * p] = signed_four(word_at(m.book, (int)first), signs);
    c.words[2 * p + 1] = signed_four(word_at(m.book, (int)second), signs >> 4);
}
/* Scale from a factor's bits and a code of 4 bits: factor * (code + 1/2) * unit. */
DEVICE float odd_scale(u32 factor, u32 code, float unit) { return float_of_half(factor) * ((float)code + 0.5f) * unit; }

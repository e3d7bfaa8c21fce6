/* affine: codes of BITS bits in a stream, the lowest bits first, with a scale and a minimum. Codes of 8 bits are less
 * 128 in signed bytes; products raise the minimum by as much, values add it to the code, which is exact. */
#pragma once
#include "bits.h"

enum { OFFSET = 0, SCALES = 1, HAS_ZEROS = 1 };
struct Stored { u32 stream[BITS], scales; };

/* BITS words, whose alignment is their largest power of two. */
DEVICE void load_stream(const u8 *p, u32 *to) {
    if (BITS % 4 == 0) {
        for (int i = 0; i < BITS; i += 4) load_words(p + 4 * i, to + i);
    } else if (BITS % 2 == 0) {
        for (int i = 0; i < BITS; i += 2) {
            const uint2 pair = load8(p + 4 * i);
            to[i] = pair.x, to[i + 1] = pair.y;
        }
    } else {
        for (int i = 0; i < BITS; i++) to[i] = word_at(p, i);
    }
}

DEVICE Stored load_block(const Matrix &m, u32 block) {
    Stored w;
    const u8 *p = field_of(m, 0, block, 4 * BITS);
    load_stream(p, w.stream);
    w.scales = word_at(field_of(m, 1, block, 4), 0);
    return w;
}

/* Codes 4 * i to 4 * i + 3, adjacent in the low bits of a word. */
DEVICE u32 four_at(const u32 *stream, int i) {
    const int at = 4 * BITS * i, word = at / 32, up = at % 32;
    const u32 low = stream[word] >> up;
    return up + 4 * BITS > 32 ? low | stream[word + 1] << (32 - up) : low;
}

/* Four adjacent codes, one a byte. */
DEVICE u32 spread_codes(u32 four) {
    const u32 mask = (1u << BITS % 32) - 1;
    if (BITS == 8) return four ^ 0x80808080u;
    return (four & mask) | (four & mask << BITS) << (8 - BITS) | (four & mask << 2 * BITS) << (16 - 2 * BITS)
           | (four & mask << 3 * BITS) << (24 - 3 * BITS);
}

#define VALUE_OFFSET (BITS == 8 ? -128 : 0)
DEVICE Codes value_codes(const Matrix &m, const Stored &w, int s) {
    Codes c;
    for (int i = 0; i < 8; i++) c.words[i] = spread_codes(four_at(w.stream, i));
    c.scales[0] = float_of_half(w.scales & 0xFFFFu);
    c.zeros[0] = float_of_half(w.scales >> 16);
    return c;
}
DEVICE Codes codes_of(const Matrix &m, const Stored &w, int s) {
    Codes c = value_codes(m, w, s);
    c.zeros[0] = fma_(c.scales[0], (float)-VALUE_OFFSET, c.zeros[0]);
    return c;
}

/* bits: integers of a few bits in words of four bytes, for codecs. */
#pragma once
#include "matrix.h"

/* A block of 32 weights: weight i of half h is scales[h] * (code i - OFFSET) + zeros[h]. Words have four codes each, signed
 * bytes in the order of columns. A codec_TYPE.h has codes_at(matrix, block) and its constants: OFFSET, SCALES (1 if
 * both halves have scales[0] and zeros[0], else 2), HAS_ZEROS (0: zeros are not read). */
struct Codes { u32 words[8]; float scales[2], zeros[2]; };

DEVICE u32 spread_bits(u32 four) { return (four & 15) * 0x00204081u & 0x01010101u; }  /* four bits, one a byte */
DEVICE u32 spread_pairs(u32 byte) {  /* four fields of two bits, one a byte */
    const u32 halves = (byte | byte << 12) & 0x000F000Fu;
    return (halves | halves << 6) & 0x03030303u;
}
DEVICE u32 nibble_at(const u8 *p, int i) { return p[i / 2] >> 4 * (i & 1) & 15u; }

/* 16 bytes of nibbles: the low ones are codes 0 to 15, the high ones 16 to 31. */
DEVICE void split_nibbles(const u32 *packed, u32 *codes) {
    for (int i = 0; i < 4; i++) {
        codes[i] = packed[i] & 0x0F0F0F0Fu;
        codes[i + 4] = packed[i] >> 4 & 0x0F0F0F0Fu;
    }
}
/* Field `shift` of each byte of 32. */
DEVICE void shifted_fields(const u8 *p, int shift, u32 mask, u32 *codes) {
    load_words(p, codes);
    load_words(p + 16, codes + 4);
    for (int i = 0; i < 8; i++) codes[i] = codes[i] >> shift & mask;
}
/* Adds bit `bit` of each byte of 32, at place `up`. */
DEVICE void add_bits(const u8 *p, int bit, int up, u32 *codes) {
    u32 high[8];
    shifted_fields(p, bit, 0x01010101u, high);
    for (int i = 0; i < 8; i++) codes[i] |= high[i] << up;
}
/* Adds the bits of a word, the lowest for the first code, at place 4. */
DEVICE void add_fifths(u32 bits, u32 *codes) {
    for (int i = 0; i < 8; i++) codes[i] |= spread_bits(bits >> 4 * i) << 4;
}

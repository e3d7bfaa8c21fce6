/* bits: integers of a few bits in words of four bytes, for codecs of quantized types.
 *
 * A codec_TYPE.h has `Stored`, what is loaded of a block of 32 columns; load_block(matrix, block), which only loads,
 * so that products load ahead; codes_of(matrix, stored, s) with s = block % 8; and constants: OFFSET, SCALES (1 if both
 * halves have scales[0] and zeros[0], else 2), HAS_ZEROS (0: zeros are not read). */
#pragma once
#include "matrix.h"

typedef float Sum;

/* Weight i of half h is scales[h] * (code i - OFFSET) + zeros[h]. A word has four signed codes in column order. */
struct Codes { u32 words[8]; float scales[2], zeros[2]; };

DEVICE u32 spread_bits(u32 four) { return (four & 15) * 0x00204081u & 0x01010101u; }  /* four bits, one a byte */
DEVICE u32 spread_pairs(u32 byte) {  /* four fields of two bits, one a byte */
    const u32 halves = (byte | byte << 12) & 0x000F000Fu;
    return (halves | halves << 6) & 0x03030303u;
}
DEVICE u32 byte_of(u32 word, int i) { return word >> 8 * i & 255u; }
DEVICE u32 nibble_of(u32 word, int i) { return word >> 4 * i & 15u; }

DEVICE void load_32(const u8 *p, u32 *to) {
    load_words(p, to);
    load_words(p + 16, to + 4);
}
/* 16 bytes of nibbles: the low ones are codes 0 to 15, the high ones 16 to 31. */
DEVICE void split_nibbles(const u32 *packed, u32 *codes) {
    for (int i = 0; i < 4; i++) {
        codes[i] = packed[i] & 0x0F0F0F0Fu;
        codes[i + 4] = packed[i] >> 4 & 0x0F0F0F0Fu;
    }
}
/* A field of each byte of 32. */
DEVICE void take_fields(const u32 *packed, int shift, u32 mask, u32 *codes) {
    for (int i = 0; i < 8; i++) codes[i] = packed[i] >> shift & mask;
}
/* Adds a field of each byte of 32 at place `up` of the codes. */
DEVICE void add_fields(const u32 *packed, int shift, u32 mask, int up, u32 *codes) {
    for (int i = 0; i < 8; i++) codes[i] |= (packed[i] >> shift & mask) << up;
}
/* Adds the bits of a word, the lowest for the first code, at place 4. */
DEVICE void add_fifths(u32 bits, u32 *codes) {
    for (int i = 0; i < 8; i++) codes[i] |= spread_bits(bits >> 4 * i) << 4;
}

/* matrix: a weight in planes (weights.py): field p of block b of row r is at planes[p] + (r * blocks + b) * bytes. */
#pragma once
#include "gpu.h"

enum { BLOCK = 32, CLASSES = 8 };  /* columns that are rounded together; float sums of a row (product.h) */

struct Matrix { const u8 *planes[3]; const u8 *book; int rows, cols; };

/* Field `plane` of a block of the type, whose number counts all rows' blocks. */
DEVICE const u8 *field_of(const Matrix &m, int plane, u32 block, int bytes) {
    return m.planes[plane] + (u64)block * bytes;
}
DEVICE u32 word_at(const u8 *p, int i) { return ((const u32 *)p)[i]; }
DEVICE u32 short_at(const u8 *p, int i) { return ((const u16 *)p)[i]; }
DEVICE float half_at(const u8 *p, int i) { return float_of_half(short_at(p, i)); }

/* 16 bytes of a weight as words; `p` is aligned to 16. */
DEVICE void load_words(const u8 *p, u32 *to) {
    const uint4 v = stream16(p);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

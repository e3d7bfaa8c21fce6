/* place: the place of a value in the order of a row: a key in the order of floats, then the id, the lowest first.
 * Places of a row are distinct, so the first k are a unique set; 0 is below all places. */
#pragma once
#include "gpu.h"

DEVICE u32 key_of(float v) {  /* NaN is above infinity, -0 equals 0 */
    const u32 bits = as_bits(v);
    if (is_nan(v)) return ~0u;
    return bits == 0x80000000u ? bits : bits ^ (bits > 0x80000000u ? ~0u : 0x80000000u);
}
DEVICE float value_of(u32 key) { return as_float(key ^ (key >= 0x80000000u ? 0x80000000u : ~0u)); }

DEVICE u64 place_of_key(u32 key, u32 id) { return (u64)key << 32 | ~id; }
DEVICE u64 place_of(float v, u32 id) { return place_of_key(key_of(v), id); }
DEVICE float value_at(u64 place) { return value_of((u32)(place >> 32)); }
DEVICE u32 id_at(u64 place) { return ~(u32)place; }
DEVICE u64 higher(u64 a, u64 b) { return a < b ? b : a; }

/* The number of places above one of them: its rank. */
DEVICE int count_above(const u64 *places, int n, u64 place) {
    int above = 0;
    for (int i = 0; i < n; i++) above += places[i] > place;
    return above;
}

/* tables: types whose codes are nibbles of a table of 16 values, four to a word. */
#pragma once
#include "bits.h"

#define BYTES_OF(a, b, c, d) ((a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | (d & 255u) << 24)
/* iq4_nl and iq4_xs. */
#define IQ4 \
    {BYTES_OF(-127, -104, -83, -65), BYTES_OF(-49, -35, -22, -10), BYTES_OF(1, 13, 25, 38), BYTES_OF(53, 69, 89, 113)}
/* E2M1 of the OCP microscaling formats 1.0, doubled to be whole; scales are halved. */
#define E2M1 {BYTES_OF(0, 1, 2, 3), BYTES_OF(4, 6, 8, 12), BYTES_OF(0, -1, -2, -3), BYTES_OF(-4, -6, -8, -12)}

/* n words of nibbles: the low ones are the first 4 * n codes, the high ones the next. */
template <int n> DEVICE void look_up_words(const u32 *table, const u32 *packed, u32 *codes) {
    for (int i = 0; i < n; i++) look_up(table, packed[i], codes + i, codes + i + n);
}

/* Products with two rows of activations at once, for machines with dot_square(), which multiplies 2 x 2 rows
 * of eight bytes. The sums are integers, equal to those of a single row. */
#pragma once
#include "lanes.h"
#include "panels.h"

#if ABREAST == 2
/* Rearranges two groups of (4 rows x 4 columns) into (2 rows x 8 columns) twice; once per tile. */
INLINE void join_groups(vb *codes) {
    UNROLLED for (int g = 0; g < GROUPS; g += 2) {
        const vi first = (vi)codes[g], last = (vi)codes[g + 1];
        codes[g] = (vb)SHUFFLE(first, last, SINGLES_LOW);
        codes[g + 1] = (vb)SHUFFLE(first, last, SINGLES_HIGH);
    }
}

/* Converts the sums of two rows, a b c d and e f g h, to squares, a b e f and c d g h; and back. */
INLINE void exchange(vi *one, vi *other) {
    const vi low = SHUFFLE(*one, *other, PAIRS_LOW);
    *other = SHUFFLE(*one, *other, PAIRS_HIGH), *one = low;
}

/* dots[t][half] += products of the joined groups with row t of n, for one or two halves of the columns. */
INLINE void dot_row_pairs(const int n, const int halves, const vb *codes, const int8_t *a, vi (*dots)[2]) {
    UNROLLED for (int t = 0; t < n; t += 2)
        UNROLLED for (int h = 0; h < halves; h++) exchange(&dots[t][h], &dots[t + 1][h]);
    UNROLLED for (int g = 0; g < GROUPS; g++)
        UNROLLED for (int t = 0; t < n; t += 2) {
            vi *square = &dots[t + g % 2][halves * g / GROUPS];
            *square = dot_square(*square, (vs)codes[g], (vs)vb_load(a + BLOCK * t + 8 * (g - g % 2)));
        }
    UNROLLED for (int t = 0; t < n; t += 2)
        UNROLLED for (int h = 0; h < halves; h++) exchange(&dots[t][h], &dots[t + 1][h]);
}
#endif

/* Two rows of activations at once, for machines whose dot_square() multiplies two by two rows of eight bytes.
 * The sums are whole numbers, the same as those of a row alone. */
#pragma once
#include "lanes.h"
#include "panels.h"

#if ABREAST == 2
/* Two groups of 4 columns of 4 rows become two rows of 8 columns, and the other two. Once for all rows of a
 * tile. */
INLINE void join_groups(vb *codes) {
    UNROLLED for (int g = 0; g < GROUPS; g += 2) {
        const vi first = (vi)codes[g], last = (vi)codes[g + 1];
        codes[g] = (vb)SHUFFLE(first, last, SINGLES_LOW);
        codes[g + 1] = (vb)SHUFFLE(first, last, SINGLES_HIGH);
    }
}

/* The sums of two rows, a b c d and e f g h, as squares, a b e f and c d g h; and squares as rows again. */
INLINE void exchange(vi *one, vi *other) {
    const vi low = SHUFFLE(*one, *other, PAIRS_LOW);
    *other = SHUFFLE(*one, *other, PAIRS_HIGH), *one = low;
}

/* dots[t][half] += the products of joined groups with row t of n, for one or two halves of the columns. */
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

/* turn: the rotation of a pair of floats by an angle, as a product of complex numbers (cos, sin). */
#pragma once
#include "gpu.h"

struct Pair { float x, y; };

/* Tables of (cos, sin) [rows, pairs] of position % fine_rows, and of position / fine_rows. */
struct Angles { const float *fine, *coarse; int fine_rows, coarse_rows, pairs; };

DEVICE Pair turned(Pair v, Pair by) { return {fma_(v.x, by.x, -(v.y * by.y)), fma_(v.x, by.y, v.y * by.x)}; }

DEVICE Pair angle_in(const float *table, long long row, int pairs, int pair) {
    const float *at = table + 2 * (row * pairs + pair);
    return {at[0], at[1]};
}

/* position * frequency of a pair. Positions after the tables have the last coarse angle. */
DEVICE Pair angle_of(Angles a, u32 position, int pair) {
    const int far = (int)(position / a.fine_rows), last = a.coarse_rows - 1;
    const Pair fine = angle_in(a.fine, position % a.fine_rows, a.pairs, pair);
    return turned(fine, angle_in(a.coarse, far < last ? far : last, a.pairs, pair));
}

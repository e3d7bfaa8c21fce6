/* log and exp in double precision, for the few numbers that decide a draw; relative errors below 1e-15. */
#pragma once
#include "simd.h"

#define LOG_2_HIGH 0x1.62e42feep-1            /* few bits, so that a product with a small integer is exact */
#define LOG_2_LOW 0x1.a39ef35793c76p-33       /* log 2 - LOG_2_HIGH */
#define LOG_2 (LOG_2_HIGH + LOG_2_LOW)
#define MINUS_INFINITY (-__builtin_inf())

INLINE double double_of_bits(uint64_t bits) { double x; memcpy(&x, &bits, sizeof x); return x; }
INLINE uint64_t bits_of_double(double x) { uint64_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

/* log x for x = 0 (-infinity) or normal x > 0. x = 2^e * m with m around 1, and log m =
 * 2 atanh((m - 1) / (m + 1)); the argument is at most 0.172, so 12 terms suffice. */
static double log_double(double x) {
    if (x == 0.0) return MINUS_INFINITY;
    uint64_t bits = bits_of_double(x);
    int e = (int)(bits >> 52) - 1023;
    double m = double_of_bits((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
    if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, e++;
    double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return e * LOG_2 + 2.0 * s * sum;
}

/* exp x for x <= 0 or NaN. x = k log 2 + r with |r| <= 0.347, and the series of exp r. */
static double exp_double(double x) {
    if (x < -708.0) return 0.0;
    if (x != x) return x;
    int k = (int)(x / LOG_2 - 0.5);
    double r = x - k * LOG_2_HIGH - k * LOG_2_LOW, sum = 1.0;
    for (int n = 14; n >= 1; n--) sum = sum * r / n + 1.0;
    return sum * double_of_bits((uint64_t)(1023 + k) << 52);
}

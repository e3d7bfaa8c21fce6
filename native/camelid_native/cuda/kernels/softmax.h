/* softmax: the keys that a row sees, and softmax sums of consecutive keys, which are joined in order. */
#pragma once
#include "math.h"
#include "step.h"

enum { CAUSAL, HELD, CHUNKED };

struct Softmax { float top, sum; };  /* highest score, and the sum of weights exp(score - top) */
struct Fades { float before, part; };  /* factors that bring two sums to one highest score */
struct Keys { int first, end; };

/* State rows that a row sees: up to itself, or all rows held; rows before the last `window` up to itself are hidden
 * unless it is 0, and with chunks of `window` rows those before the row's chunk. */
DEVICE Keys seen_by(Row row, Group state, int mask, int window) {
    const int kept = (int)state.write, next = (int)row.state_row + 1;
    const int start = mask == CHUNKED ? (next - 1) / window * window : window ? next - window : 0;
    return {start > kept ? start : kept, mask == HELD ? (int)state.held : next};
}

/* Those of split `i`; splits have fixed borders, so that a row's sums depend on its own keys only. */
DEVICE Keys in_split(Keys seen, int i, int split) {
    const int first = i * split, end = first + split;
    return {first > seen.first ? first : seen.first, end < seen.end ? end : seen.end};
}

/* The sum of no keys; a sink is a score without a value. */
DEVICE Softmax begun(const float *sinks, int head) {
    if (sinks) return {sinks[head], 1.0f};
    return {LOWEST, 0.0f};
}

/* A NaN among the scores is not the highest; its weight is NaN. */
DEVICE Fades fades_of(Softmax a, Softmax b) {
    const float top = max_(a.top, b.top);
    return {exp_(a.top - top), exp_(b.top - top)};
}

DEVICE float joined(float a, float b, Fades by) { return fma_(b, by.part, a * by.before); }
DEVICE Softmax joined(Softmax a, Softmax b, Fades by) { return {max_(a.top, b.top), joined(a.sum, b.sum, by)}; }

/* router: experts of a row and their weights. A block per row. An expert's slot is the number of experts above it. */
#include "block.h"
#include "math.h"
#include "place.h"
#include "step.h"

#define THREADS 256
#define MOST_EXPERTS 1024
#define NEAR 0.02f

enum { SOFTMAX, SIGMOID, TOPK_SOFTMAX, SPARSEMIXER };

DEVICE u64 rank_of(float v, u32 id) { return place_of_key(is_nan(v) ? 0u : key_of(v), id); }  /* NaN is below all */

DEVICE float largest(const float *values, int n) {
    float top = -infinity_();
    for (int i = THREAD; i < n; i += THREADS) top = max_(top, values[i]);
    return block_max<THREADS>(top);
}

/* values = values / their sum. */
DEVICE void normalize_values(float *values, int n) {
    float sum = 0.0f;
    for (int i = THREAD; i < n; i += THREADS) sum = sum + values[i];
    const float total = block_sum<THREADS>(sum);
    for (int i = THREAD; i < n; i += THREADS) values[i] = values[i] / total;
}

/* values = softmax(values); all NaN if one is. A thread changes its own values only. */
DEVICE void softmax(float *values, int n) {
    const float top = largest(values, n);
    for (int i = THREAD; i < n; i += THREADS) values[i] = exp_(values[i] - top);
    normalize_values(values, n);
}

/* Scores of experts, and their values to compare: scores + bias, or else the logits, since scores tie where they
 * saturate. */
DEVICE void score_experts(const float *logits, const float *bias, int n, int gate, float *scores, u64 *ranks) {
    for (int i = THREAD; i < n; i += THREADS) scores[i] = gate == SIGMOID ? sigmoid_(logits[i]) : logits[i];
    if (gate == SOFTMAX) softmax(scores, n);
    for (int i = THREAD; i < n; i += THREADS) ranks[i] = rank_of(bias ? scores[i] + bias[i] : logits[i], (u32)i);
    SYNC();
}

/* The sum of a group's two largest scores + bias (DeepSeek-V3, arXiv 2412.19437); NaN if any is. */
DEVICE float pair_sum(const float *scores, const float *bias, int first, int size) {
    float top = -infinity_(), second = top;
    for (int i = first; i < first + size; i++) {
        const float v = bias ? scores[i] + bias[i] : scores[i];
        if (is_nan(v)) return v;
        second = v > top ? top : max_(second, v);
        top = max_(top, v);
    }
    return size > 1 ? top + second : top;
}

/* Ranks experts outside the best groups as -infinity. */
DEVICE void leave_groups(const float *scores, const float *bias, int n, int n_groups, int n_used, u64 *groups,
                         u64 *ranks) {
    const int size = n / n_groups;
    for (int g = THREAD; g < n_groups; g += THREADS)
        groups[g] = rank_of(pair_sum(scores, bias, g * size, size), (u32)g);
    SYNC();
    for (int i = THREAD; i < n; i += THREADS)
        if (count_above(groups, n_groups, groups[i / size]) >= n_used) ranks[i] = rank_of(-infinity_(), (u32)i);
    SYNC();
}

/* The softmax of expert `i` among the experts near it whose rank is not above its own (arXiv 2409.12136). */
DEVICE float near_share(const float *scores, const u64 *ranks, int n, int i) {
    float sum = 0.0f;
    for (int e = 0; e < n; e++) {
        const bool is_near = scores[i] - scores[e] <= NEAR * max_(abs_(scores[e]), scores[i]);
        if (ranks[e] <= ranks[i] && is_near) sum = sum + exp_(scores[e] - scores[i]);
    }
    return 1.0f / sum;
}

KERNEL(router, THREADS)(Step step, View ids, View probs, View logits, const float *bias, const float *gain,
                        int n_experts, int slots, int gate, int normalize, float scale, int n_groups,
                        int n_groups_used) {
    SHARED(float, scores, MOST_EXPERTS);
    SHARED(float, chosen, MOST_EXPERTS);
    SHARED(u64, ranks, MOST_EXPERTS);
    SHARED(u64, groups, MOST_EXPERTS);
    if (is_unused(step, logits, BLOCK_Y)) return;
    score_experts(row_of(logits, BLOCK_Y), bias, n_experts, gate, scores, ranks);
    if (n_groups_used < n_groups) leave_groups(scores, bias, n_experts, n_groups, n_groups_used, groups, ranks);
    for (int i = THREAD; i < n_experts; i += THREADS) {
        const int slot = count_above(ranks, n_experts, ranks[i]);
        if (slot >= slots) continue;
        row_of(ids, BLOCK_Y)[slot] = (float)i;
        chosen[slot] = gate == SPARSEMIXER ? near_share(scores, ranks, n_experts, i) : scores[i];
    }
    SYNC();
    if (gate == TOPK_SOFTMAX) softmax(chosen, slots);
    if (normalize) normalize_values(chosen, slots);
    for (int slot = THREAD; slot < slots; slot += THREADS) {
        const float by = gain ? gain[(int)row_of(ids, BLOCK_Y)[slot]] : 1.0f;
        row_of(probs, BLOCK_Y)[slot] = scale * chosen[slot] * by;
    }
}

/* sample: draws the id of each output, and lists candidates. A block per output, over its row of logits. */
#include "adjust.h"
#include "block.h"
#include "philox.h"
#include "topk.h"

#define THREADS 256
/* Noise is in [-2.86, 17.33]: a score below the top by more than the range cannot win. */
#define HOPELESS -20.5f

enum { IS_USABLE, IS_NAN, IS_ZERO };                 /* status of a row; NaN or +infinity */
enum { RESULT_WORDS = 4, CANDIDATE_WORDS = 2 * MOST_WANTED + 2 };

/* A row before it is adjusted: the thread's highest place, the row's, its status and log-sum-exp. */
struct Scan { u64 own_top, top; u32 status; float log_sum_exp; };
struct How { float temperature, top_p, log_min_p; int top_k; Noise noise; };

DEVICE How how_of(const u32 *how, u32 position) {
    const float min_p = as_float(how[HOW_MIN_P]);
    const Noise noise = {{how[HOW_SEED_LOW], how[HOW_SEED_HIGH]}, position + how[HOW_OFFSET], how[HOW_CHOICE]};
    const float log_min_p = min_p > 0.0f ? log_(min_p) : -infinity_();
    return {as_float(how[HOW_TEMPERATURE]), as_float(how[HOW_TOP_P]), log_min_p, (int)how[HOW_TOP_K], noise};
}

DEVICE Scan scan(const float *logits, int vocab) {
    float most = LOWEST, sum = 0.0f, n_set = 0.0f;  /* sum of exp(logit - most) */
    u64 own_top = 0;
    each_logit(logits, vocab, [&](float v, u32 id) {
        const float ratio = exp_(-abs_(v - most));
        own_top = higher(own_top, place_of(v, id));
        sum = v > most ? fma_(sum, ratio, 1.0f) : sum + ratio;
        most = max_(most, v);
        n_set += v != 0.0f;
    });
    const u64 top = block_max<THREADS>(own_top);
    const float highest = value_at(top);
    const float total = block_sum<THREADS>(sum * exp_(most - highest));
    const bool is_zero = block_sum<THREADS>(n_set) == 0.0f, is_broken = !(highest < infinity_());
    return {own_top, top, (u32)(is_broken ? IS_NAN : is_zero ? IS_ZERO : IS_USABLE), highest + log_(total)};
}

DEVICE u64 own_highest(const float *logits, int vocab) {
    u64 top = 0;
    each_logit(logits, vocab, [&](float v, u32 id) { top = higher(top, place_of(v, id)); });
    return top;
}

/* Place of an id's score in a draw; `beyond` is its logit minus the largest logit. */
DEVICE u64 score(float beyond, u32 id, How how) {
    const float level = beyond / how.temperature;
    if (level < HOPELESS || beyond < how.log_min_p) return 0;
    return place_of(level + gumbel(id, how.noise), id);
}

/* True if the thread's place of the n sorted is within top p: the weights before it sum to less than top_p of all. */
DEVICE bool is_probable(const Selection *s, float *weights, int n, float top_p) {
    const float top = value_at(s->sorted[0]);
    if (THREAD < n) weights[THREAD] = exp_(value_at(s->sorted[THREAD]) - top);
    SYNC();
    float before = 0.0f, sum = 0.0f;
    for (int i = 0; i < n; i++) {
        before = i == THREAD ? sum : before;
        sum = sum + weights[i];
    }
    return THREAD < n && (THREAD == 0 || !(top_p < 1.0f) || before < top_p * sum);
}

/* The best score of the thread's ids: of all ids, or of the top k within top p. */
DEVICE u64 draw(const float *logits, int vocab, u64 own_top, float top, How how) {
    SHARED(Selection, selection, 1);
    SHARED(float, weights, MOST_WANTED);
    u64 best = 0;
    if (how.top_k == 0) {
        each_logit(logits, vocab, [&](float v, u32 id) { best = higher(best, score(v - top, id, how)); });
        return best;
    }
    const int n = how.top_k < vocab ? how.top_k : vocab;
    keep_highest(selection, logits, vocab, n, own_top);
    if (!is_probable(selection, weights, n, how.top_p)) return 0;
    const u64 place = selection->sorted[THREAD];
    return score(value_at(place) - top, id_at(place), how);
}

/* The last output of an output's sequence. */
DEVICE int last_output(Step step, int output) {
    int last = output;
    for (int later = output + 1; later < count(step, OUTPUTS); later++)
        last = output_at(step, later)[1] == output_at(step, output)[1] ? later : last;
    return last;
}

/* The number of ids before `position` in a ring of `rows` places, one of them for the draw at position `newest`. */
DEVICE u32 n_ids_before(u32 position, u32 newest, u32 rows) {
    const u32 first = newest < rows ? 0 : newest + 1 - rows;
    return position < first ? 0 : position - first;
}

KERNEL(sample, THREADS)(Step step, View logits, Ring tokens, u32 *result, int vocab) {
    SHARED(u32, touched, MOST_TOUCHED);
    const int o = BLOCK_Y;
    if (is_unused(step, logits, o)) return;
    const u32 sequence = output_at(step, o)[1], position = output_at(step, o)[2];
    const u32 *words = step.words + step.words[SAMPLING_AT] + HOW_WORDS * sequence_at(step, sequence)[3];
    u32 *ring = tokens.ids + (long long)group_at(step, sequence, tokens.group).write * tokens.rows;
    float *row = row_of(logits, o);
    const Scan scanned = scan(row, vocab);
    Penalties penalties = penalties_of(step, words);
    const int last = last_output(step, o);
    const u32 n_ids = n_ids_before(position, output_at(step, last)[2], (u32)tokens.rows);
    penalties.last_n = penalties.last_n < n_ids ? penalties.last_n : n_ids;
    const How how = how_of(words, position);
    const bool adjusts = penalties.last_n + penalties.n_biases > 0;
    u64 own_top = scanned.own_top, best = scanned.top;
    Own own = {NO_ID, 0.0f};
    if (adjusts) {
        own = adjust(row, vocab, penalties, ring, tokens.rows, position, touched);
        own_top = own_highest(row, vocab);
        best = block_max<THREADS>(own_top);
    }
    if (how.temperature > 0.0f) best = block_max<THREADS>(draw(row, vocab, own_top, value_at(best), how));
    if (adjusts) restore(row, own);
    if (THREAD != 0) return;
    const u32 id = id_at(best) < (u32)vocab ? id_at(best) : (u32)vocab - 1;
    if (o == last) ring[position % (u32)tokens.rows] = id;
    u32 *out = result + RESULT_WORDS * o;
    out[0] = id;
    out[1] = scanned.status;
    out[2] = as_bits(row[id]);
    out[3] = as_bits(scanned.log_sum_exp);
}

/* Mean and variance of the logits above -infinity. */
struct Moments { float mean, variance; };
DEVICE Moments moments(const float *logits, int vocab) {
    float sum = 0.0f, n = 0.0f, squares = 0.0f;
    each_logit(logits, vocab, [&](float v, u32) {
        const bool is_counted = v != -infinity_();
        sum = sum + (is_counted ? v : 0.0f);
        n += is_counted;
    });
    const float all = max_(block_sum<THREADS>(n), 1.0f), mean = block_sum<THREADS>(sum) / all;
    each_logit(logits, vocab, [&](float v, u32) {
        const float off = v != -infinity_() ? v - mean : 0.0f;
        squares = fma_(off, off, squares);
    });
    return {mean, block_sum<THREADS>(squares) / all};
}

/* Ids and logits of the 256 largest logits (all if the row has fewer), the largest first; then the moments. */
KERNEL(candidates, THREADS)(Step step, View logits, u32 *candidates, int vocab) {
    SHARED(Selection, selection, 1);
    if (is_unused(step, logits, BLOCK_Y)) return;
    const float *row = row_of(logits, BLOCK_Y);
    u32 *out = candidates + CANDIDATE_WORDS * BLOCK_Y;
    const Moments found = moments(row, vocab);
    const int want = vocab < MOST_WANTED ? vocab : MOST_WANTED;
    keep_highest(selection, row, vocab, want, own_highest(row, vocab));
    if (THREAD < want) {
        out[THREAD] = id_at(selection->sorted[THREAD]);
        out[MOST_WANTED + THREAD] = as_bits(row[out[THREAD]]);
    }
    if (THREAD == 0) out[2 * MOST_WANTED] = as_bits(found.mean), out[2 * MOST_WANTED + 1] = as_bits(found.variance);
}

/* floats[o] = x[o]: logits that the host asks for. */
KERNEL(keep, THREADS)(Step step, View logits, float *floats, int vocab) {
    const int c = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, logits, BLOCK_Y) || c >= vocab) return;
    floats[(long long)BLOCK_Y * vocab + c] = row_of(logits, BLOCK_Y)[c];
}

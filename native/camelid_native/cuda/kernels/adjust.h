/* adjust: applies biases and penalties to a row of logits in place. One thread owns each touched id and keeps its old
 * logit. */
#pragma once
#include "step.h"

enum { MOST_BIASES = 16, MOST_LAST_N = 64, MOST_TOUCHED = MOST_BIASES + MOST_LAST_N };
enum { NO_ID = 0xFFFFFFFFu };
/* Words of a sampling row (plan/step.py). */
enum {
    HOW_TEMPERATURE, HOW_SEED_LOW, HOW_SEED_HIGH, HOW_CHOICE, HOW_OFFSET, HOW_TOP_K, HOW_TOP_P, HOW_MIN_P, HOW_REPEAT,
    HOW_FREQUENCY, HOW_PRESENCE, HOW_LAST_N, HOW_BIASES, HOW_FIRST_BIAS, HOW_WORDS
};

struct Penalties { float repeat, frequency, presence; u32 last_n, n_biases; const u32 *biases; };
struct Own { u32 id; float before; };  /* an id, and its logit before the change; NO_ID: none */

DEVICE Penalties penalties_of(Step step, const u32 *how) {
    const float repeat = as_float(how[HOW_REPEAT]), frequency = as_float(how[HOW_FREQUENCY]);
    const float presence = as_float(how[HOW_PRESENCE]);
    const bool is_neutral = repeat == 1.0f && frequency == 0.0f && presence == 0.0f;
    const u32 *biases = step.words + step.words[BIASES_AT] + 2 * how[HOW_FIRST_BIAS];
    return {repeat, frequency, presence, is_neutral ? 0 : how[HOW_LAST_N], how[HOW_BIASES], biases};
}

/* The id that entry i touches: entries are the biases, then the last_n positions before `position`. */
DEVICE u32 touched_id(Penalties p, const u32 *ring, int ring_rows, u32 position, u32 i) {
    if (i < MOST_BIASES) return i < p.n_biases ? p.biases[2 * i] : NO_ID;
    const u32 back = i - MOST_BIASES;
    return back < p.last_n ? ring[(position - 1 - back) % (u32)ring_rows] : NO_ID;
}

/* The id of the thread's entry, if no earlier entry touches it. */
DEVICE u32 own_id(const u32 *touched, int vocab) {
    if (THREAD >= MOST_TOUCHED || touched[THREAD] >= (u32)vocab) return NO_ID;
    for (int i = 0; i < THREAD; i++)
        if (touched[i] == touched[THREAD]) return NO_ID;
    return touched[THREAD];
}

DEVICE float adjusted(Own own, Penalties p, const u32 *touched) {
    float logit = own.before, n = 0.0f;
    for (int i = 0; i < MOST_BIASES; i++)
        if (touched[i] == own.id) logit = logit + as_float(p.biases[2 * i + 1]);
    for (int i = MOST_BIASES; i < MOST_TOUCHED; i++) n += touched[i] == own.id;
    if (n == 0.0f) return logit;
    return (logit > 0.0f ? logit / p.repeat : logit * p.repeat) - (n * p.frequency + p.presence);
}

/* Changes the row, and returns the thread's entry for `restore`. `touched` [MOST_TOUCHED] is shared. */
DEVICE Own adjust(float *logits, int vocab, Penalties p, const u32 *ring, int ring_rows, u32 position, u32 *touched) {
    if (THREAD < MOST_TOUCHED) touched[THREAD] = touched_id(p, ring, ring_rows, position, (u32)THREAD);
    SYNC();
    Own own = {own_id(touched, vocab), 0.0f};
    if (own.id != NO_ID) {
        own.before = logits[own.id];
        logits[own.id] = adjusted(own, p, touched);
    }
    SYNC();
    return own;
}

DEVICE void restore(float *logits, Own own) {
    SYNC();
    if (own.id != NO_ID) logits[own.id] = own.before;
    SYNC();
}

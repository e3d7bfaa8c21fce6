/* topk: exact selection of the `want` highest places of a row of logits, at most a block's THREADS. */
#pragma once
#include "place.h"

enum { AHEAD = 8 };  /* loads in flight */
enum { MOST_WANTED = 256, BINS = 256, MOST_KEPT = MOST_WANTED + BINS };  /* a bin per value of 8 bits */

/* Calls f(logit, id) for each of the thread's logits, ids ascending. A block has a whole row to itself, so that only
 * loads in flight hide their latency. */
template <class F> DEVICE void each_logit(const float *logits, int n, F f) {
    int id = THREAD;
    for (; id + (AHEAD - 1) * MOST_WANTED < n; id += AHEAD * MOST_WANTED) {
        float v[AHEAD];
        UNROLL
        for (int i = 0; i < AHEAD; i++) v[i] = logits[id + i * MOST_WANTED];
        UNROLL
        for (int i = 0; i < AHEAD; i++) f(v[i], (u32)(id + i * MOST_WANTED));
    }
    for (; id < n; id += MOST_WANTED) f(logits[id], (u32)id);
}

/* In shared memory: `sorted` gets the places in order. */
struct Selection {
    u64 tops[MOST_WANTED], kept[MOST_KEPT], sorted[MOST_WANTED], guess;
    u32 bins[BINS], n_kept;
    int bin, left;
};

/* guess = the want-th of the threads' highest places: at least `want` places of the row are not below it, and usually
 * few more. */
DEVICE void make_guess(Selection *s, int want, u64 own_top) {
    s->tops[THREAD] = own_top;
    SYNC();
    if (count_above(s->tops, MOST_WANTED, own_top) + 1 == want) s->guess = own_top;
}

/* The bin with the left-th highest place, and the rank of that place in the bin. */
DEVICE void cut_bins(Selection *s, int left) {
    int bin = BINS - 1;
    for (; bin > 0 && (int)s->bins[bin] < left; bin--) left -= (int)s->bins[bin];
    s->bin = bin;
    s->left = left;
}

/* Keeps the places from `least` on, and counts the next digit of those with the digits of `low`. */
DEVICE void keep_from(Selection *s, const float *logits, int n, u64 least, u64 low, u64 mask, int shift) {
    each_logit(logits, n, [=](float v, u32 id) {
        const u64 place = place_of(v, id);
        if (place < least) return;
        const u32 slot = atomic_add(&s->n_kept, 1);
        if (slot < MOST_KEPT) s->kept[slot] = place;
        if ((place & mask) == low) atomic_add(&s->bins[place >> shift & 255], 1);
    });
}

/* Moves each kept place to its rank. */
DEVICE void sort_kept(Selection *s, int want) {
    const int n = (int)s->n_kept;
    for (int i = THREAD; i < n; i += MOST_WANTED) {
        const int above = count_above(s->kept, n, s->kept[i]);
        if (above < want) s->sorted[above] = s->kept[i];
    }
    SYNC();
}

/* Keeps the places from the guess on. If they are too many, radix selection narrows them, by one digit of 8 bits a
 * pass; the want-th place is not below the guess, so places below it need not be counted. In the last pass, at most
 * BINS places have the digits of the want-th, and fewer than `want` are above. */
DEVICE void keep_highest(Selection *s, const float *logits, int n, int want, u64 own_top) {
    u64 low = 0, mask = 0;  /* known digits of the want-th place */
    int left = want;        /* its rank among the places with these digits */
    make_guess(s, want, own_top);
    for (int shift = 56; shift >= 0; shift -= 8) {
        s->bins[THREAD] = 0;
        if (THREAD == 0) s->n_kept = 0;
        SYNC();
        keep_from(s, logits, n, higher(s->guess, low), low, mask, shift);
        SYNC();
        if (s->n_kept <= MOST_KEPT) break;
        if (THREAD == 0) cut_bins(s, left);
        SYNC();
        low |= (u64)s->bin << shift;
        mask |= (u64)255 << shift;
        left = s->left;
    }
    sort_kept(s, want);
}

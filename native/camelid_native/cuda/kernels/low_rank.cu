/* low_rank: terms of adapters, in two launches: u = scales * (A @ x), and y = y + scale * sum over i of u[i] * B[i]. A
 * block has up to PAIRS pairs of a row and a slot of experts, one after the other in u, of which neighbours with one
 * term share its loads. The order of each sum depends on the sizes alone. Blocks without an adapter leave at once. */
#include "adapters.h"
#include "deferred.h"
#include "tile.h"

#define THREADS 256
enum { COLUMNS_AT_ONCE = RANKS == 1 ? 4 : 1 };  /* of A and x in flight; a tile has many sums in registers */

/* Pairs of y: `slots` a row, 1 of a matrix. `vectors` is the number of vectors in a row of x. */
struct Operands { Step step; View y, x, ids; Site site; int slots, vectors; };

DEVICE Term term_of_pair(const Operands &o, int pair) {
    const int row = pair / o.slots;
    const u32 slot = slot_of(o.step, o.y, row);
    const int expert = slot && o.ids.at ? expert_of(o.ids, row, pair % o.slots, o.site.experts) : 0;
    return term_of(o.site, slot, expert);
}

/* True if two pairs have one term: A is of one slot and expert. */
DEVICE bool are_one(const Term &a, const Term &b) { return a.a == b.a; }

DEVICE const float *x_of(const Operands &o, int pair) {
    return row_of(o.x, pair / o.slots) + (long long)(pair % o.slots % o.vectors) * o.site.n_in;
}

/* f.run<N>(term, first, n) for each run of n <= N pairs of f.o with one term, from pair `first` on. All threads of the block
 * have the same runs. */
template <class F> DEVICE void each_run(const F &f) {
    const Operands &o = f.o;
    const int start = BLOCK_Y * PAIRS, left = count(o.step, o.y.rows_word) * o.slots - start;
    const int end = start + (left < PAIRS ? left : PAIRS);
    for (int first = start; first < end;) {
        const Term term = term_of_pair(o, first);
        int n = 1;
        while (first + n < end && are_one(term, term_of_pair(o, first + n))) n++;
        if (term.rank > 0 && n == 1) f.template run<1>(term, first, n);
        if (term.rank > 0 && n > 1) f.template run<PAIRS>(term, first, n);
        first += n;
    }
}

/* u of RANKS rows of A, from the block's first on. */
struct Dots {
    Operands o;
    Norm norm;
    float *u;

    template <int N> DEVICE void run(const Term &term, int first, int n) const {
        const int i = BLOCK_X * RANKS, last = term.rank - 1, n_in = o.site.n_in;
        if (i > last) return;
        float sums[RANKS][N] = {};
#pragma unroll COLUMNS_AT_ONCE
        for (int c = THREAD; c < n_in; c += THREADS) {
            float v[N];
            UNROLL
            for (int t = 0; t < N; t++) v[t] = x_of(o, first + (t < n ? t : n - 1))[c];
            UNROLL
            for (int r = 0; r < RANKS; r++) {
                const float a = term.a[(long long)(i + r < last ? i + r : last) * n_in + c];
                UNROLL
                for (int t = 0; t < N; t++) sums[r][t] = fma_(a, v[t], sums[r][t]);
            }
        }
        put<N>(term, first, n, sums);
    }
    template <int N> DEVICE void put(const Term &term, int first, int n, const float (&sums)[RANKS][N]) const {
        UNROLL
        for (int t = 0; t < N; t++) {
            const int pair = first + (t < n ? t : n - 1), i = BLOCK_X * RANKS;
            const float by = norm.cols ? scale_of_row<THREADS>(norm, pair / o.slots) : 1.0f;
            UNROLL
            for (int r = 0; r < RANKS; r++) {
                const float sum = block_sum<THREADS>(sums[r][t]);
                if (THREAD == 0 && t < n && i + r < term.rank)
                    u[(long long)pair * o.site.most + i + r] = term.scales[i + r] * by * sum;
            }
        }
    }
};

/* The term of a column of each pair of a run. */
struct Spread {
    Operands o;
    const float *u;
    float scale;

    template <int N> DEVICE void run(const Term &term, int first, int n) const {
        const int c = BLOCK_X * THREADS + THREAD, n_out = o.site.n_out;
        if (c >= n_out) return;
        float sums[N] = {};
        for (int i = 0; i < term.rank; i++) {
            const float b = term.b[(long long)i * n_out + c];
            UNROLL
            for (int t = 0; t < N; t++) {
                const long long pair = first + (t < n ? t : n - 1);
                sums[t] = fma_(u[pair * o.site.most + i], b, sums[t]);
            }
        }
        UNROLL
        for (int t = 0; t < N; t++) {
            const int pair = first + t;
            float *at = row_of(o.y, pair / o.slots) + (long long)(pair % o.slots) * n_out + c;
            if (t < n) *at = fma_(scale, sums[t], *at);
        }
    }
};

/* Blocks: RANKS rows of A; PAIRS pairs. With `norm_cols`, x is a deferred norm. */
KERNEL(low_rank_dots, THREADS)(Step step, View y, View x, View ids, Adapters adapters, float *u, int rank, int n_in,
                               int n_out, int experts, int slots, int vectors, int norm_cols, float eps) {
    const Site site = {adapters, rank, n_in, n_out, experts};
    each_run(Dots{{step, y, x, ids, site, slots, vectors}, {x, 0, norm_cols, eps, 0}, u});
}

/* Blocks: THREADS columns of y of a slot of experts; PAIRS pairs. */
KERNEL(low_rank_spread, THREADS)(Step step, View y, View x, View ids, Adapters adapters, const float *u, int rank,
                                 int n_in, int n_out, int experts, int slots, int vectors, float scale) {
    const Site site = {adapters, rank, n_in, n_out, experts};
    each_run(Spread{{step, y, x, ids, site, slots, vectors}, u, scale});
}

/* rwkv6: the scan of RWKV-6 (Peng et al., arXiv 2404.05892), and without `u` gated linear attention. Its meaning is in
 * plan/op_rows_recurrent.py. */
#include "block.h"
#include "math.h"
#include "slots.h"

#define THREADS 256
#define NARROW 64  /* columns of a head of published models; wider heads have fewer rows staged */

/* Operands of scan_rwkv6. Heads have `width` columns and as many rows of their state matrix; `heads_each` heads share k
 * and v. */
struct Wkv {
    View y, r, w, k, v;
    const float *u;
    int width, heads_each;
};

enum { STAGED_ROWS = GROUPS, STAGED_FLOATS = STAGED_ROWS * NARROW };
/* Vectors of a head for rows of the step: decay, key and r by column; v by row of the state matrix; the sum of
 * r * u * k. */
struct Staged {
    float decay[STAGED_FLOATS], key[STAGED_FLOATS], r[STAGED_FLOATS], v[STAGED_ROWS * GROUPS], bonus[STAGED_ROWS];
};

/* The first column of the block's head in k and v. */
DEVICE int key_column(Wkv m) { return BLOCK_Y / m.heads_each * m.width; }

/* The sum of r * u * k over the columns of a head, 0 without u. For all lanes of a wave. */
DEVICE float bonus_of(Wkv m, int t) {
    const int at = BLOCK_Y * m.width, key_at = key_column(m);
    float sum = 0.0f;
    for (int c = LANE; m.u && c < m.width; c += GROUP_LANES)
        sum = fma_(row_of(m.r, t)[at + c] * m.u[at + c], row_of(m.k, t)[key_at + c], sum);
    return group_sum(sum);
}

/* Row t of the step, by one group, as staged row `to`; `bonus` is its bonus_of. */
DEVICE void stage_row(Staged *s, Wkv m, int t, int to, float bonus) {
    const int at = BLOCK_Y * m.width, key_at = key_column(m), first = to * m.width;
    for (int c = LANE; c < m.width; c += GROUP_LANES) {
        const float k = row_of(m.k, t)[key_at + c], rate = exp_(row_of(m.w, t)[at + c]);
        s->decay[first + c] = exp_(-rate);
        s->key[first + c] = m.u ? k : -expm1_negative(-rate) * k;
        s->r[first + c] = row_of(m.r, t)[at + c];
    }
    if (LANE == 0) s->bonus[to] = bonus;
}

/* Stages n rows of the step, from `first` on. Groups beyond take part in the sum of the last row. */
DEVICE void stage(Staged *s, Wkv m, int first, int n) {
    const int own = THREAD / GROUP_LANES, t = first + (own < n ? own : n - 1);
    const float bonus = bonus_of(m, t);
    SYNC();  /* the rows before are read */
    if (own < n) stage_row(s, m, t, own, bonus);
    if (THREAD < n * GROUPS) {
        const int p = BLOCK_X * GROUPS + THREAD % GROUPS;
        s->v[THREAD] = p < m.width ? row_of(m.v, first + THREAD / GROUPS)[key_column(m) + p] : 0.0f;
    }
    SYNC();
}

/* S = S * decay + v * key; returns S @ r, with the S before (`is_late`) or after. `at` is the place of the staged
 * row. */
template <int PER_LANE>
DEVICE float advance(const Staged *s, StatePart<PER_LANE> &part, int at, int width, float v, bool is_late) {
    float sum = 0.0f;
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES) {
        if (c >= width) continue;
        const float before = part.at[i];
        part.at[i] = fma_(v, s->key[at + c], before * s->decay[at + c]);
        sum = fma_(is_late ? before : part.at[i], s->r[at + c], sum);
    }
    return group_sum(sum);
}

/* The rows of a sequence, for the block's rows of a head's state matrix. Groups beyond its last row take part with
 * zeros. */
template <int PER_LANE> DEVICE void scan_rows(Step step, Slots state, Wkv m, Staged *s) {
    const int p = BLOCK_X * GROUPS + THREAD / GROUP_LANES, row = BLOCK_Y * m.width + p;
    const int most = STAGED_FLOATS / (PER_LANE * GROUP_LANES), used = p < m.width ? m.width : 0;
    const Span span = span_of(step, (u32)BLOCK_Z);
    const Group group = group_at(step, (u32)BLOCK_Z, state.group);
    StatePart<PER_LANE> part;
    load_part(part, state, group, row, used, m.width);
    for (int done = 0; done < span.rows; done += most) {
        const int first = span.first + done, n = span.rows - done < most ? span.rows - done : most;
        stage(s, m, first, n);
        for (int r = 0; r < n; r++) {
            const float v = s->v[r * GROUPS + THREAD / GROUP_LANES];
            const float y = advance(s, part, r * m.width, m.width, v, m.u != 0);
            if (LANE == 0 && used) row_of(m.y, first + r)[row] = fma_(v, s->bonus[r], y);
        }
    }
    store_part(part, state, group, row, used, m.width);
}

/* Blocks: parts of a head's state matrix, heads, sequences. */
KERNEL(scan_rwkv6, THREADS)(Step step, View y, View r, View w, View k, View v, const float *u, Slots state, int width,
                            int heads_each) {
    SHARED(Staged, staged, 1);
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    const Wkv m = {y, r, w, k, v, u, width, heads_each};
    if (width <= NARROW) scan_rows<NARROW / GROUP_LANES>(step, state, m, staged);
    else scan_rows<256 / GROUP_LANES>(step, state, m, staged);
}

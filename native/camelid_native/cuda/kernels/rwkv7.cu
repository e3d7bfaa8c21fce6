/* rwkv7: ops of RWKV-7 over heads (Peng et al., arXiv 2503.14456). Their meaning is in plan/op_rows_recurrent.py. */
#include "block.h"
#include "math.h"
#include "slots.h"

#define THREADS 256
#define NARROW 64  /* columns of a head of published models; wider heads have fewer rows staged */

/* Operands of scan_rwkv7. Heads have `width` columns and as many rows of their state matrix. */
struct Wkv {
    View y, r, w, k, v, a;
    const float *k_k, *k_a;
    int width;
};

enum { STAGED_ROWS = GROUPS, STAGED_FLOATS = STAGED_ROWS * NARROW };
/* Vectors of a head for rows of the step: u, a * u, key, decay and r by column; v by row of the state matrix. */
struct Staged {
    float unit[STAGED_FLOATS], correction[STAGED_FLOATS], key[STAGED_FLOATS], decay[STAGED_FLOATS], r[STAGED_FLOATS];
    float v[STAGED_ROWS * GROUPS];
};

DEVICE float key_of(float k, float a, float k_a) { return fma_(k * (a - 1.0f), k_a, k); }

/* 1 / |k_k * k| of a head, the length at least 1e-12; `at` is its first column. For all lanes of a group. */
DEVICE float unit_scale(Wkv m, int t, int at) {
    float squares = 0.0f;
    for (int c = LANE; c < m.width; c += GROUP_LANES) {
        const float u = row_of(m.k, t)[at + c] * m.k_k[at + c];
        squares = fma_(u, u, squares);
    }
    const float length = sqrt_(group_sum(squares));
    return 1.0f / (length > 1e-12f ? length : 1e-12f);
}

/* Row t of the step, by one group, to place `to` of the staged vectors; `scale` is its unit_scale. */
DEVICE void stage_row(Staged *s, Wkv m, int t, int to, float scale) {
    const int at = BLOCK_Y * m.width;
    for (int c = LANE; c < m.width; c += GROUP_LANES) {
        const float k = row_of(m.k, t)[at + c], a = row_of(m.a, t)[at + c], unit = k * m.k_k[at + c] * scale;
        s->unit[to + c] = unit;
        s->correction[to + c] = a * unit;
        s->key[to + c] = key_of(k, a, m.k_a[at + c]);
        s->decay[to + c] = exp_(sigmoid_(row_of(m.w, t)[at + c]) * -0.60653066f);  /* exp(-1/2) */
        s->r[to + c] = row_of(m.r, t)[at + c];
    }
}

/* Stages n rows of the step, from `first` on. Groups beyond take part in the sum of the last row. */
DEVICE void stage(Staged *s, Wkv m, int first, int n) {
    const int own = THREAD / GROUP_LANES, t = first + (own < n ? own : n - 1);
    const float scale = unit_scale(m, t, BLOCK_Y * m.width);
    SYNC();  /* the rows before are read */
    if (own < n) stage_row(s, m, t, own * m.width, scale);
    if (THREAD < n * GROUPS) {
        const int p = BLOCK_X * GROUPS + THREAD % GROUPS;
        s->v[THREAD] = p < m.width ? row_of(m.v, first + THREAD / GROUPS)[BLOCK_Y * m.width + p] : 0.0f;
    }
    SYNC();
}

/* S = S * decay - (S @ u) * correction + v * key; returns S @ r. `at` is the place of the staged row. */
template <int PER_LANE> DEVICE float advance(const Staged *s, StatePart<PER_LANE> &part, int at, int width, float v) {
    float held = 0.0f, sum = 0.0f;
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        if (c < width) held = fma_(part.at[i], s->unit[at + c], held);
    held = group_sum(held);
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES) {
        if (c >= width) continue;
        const float kept = fma_(-held, s->correction[at + c], part.at[i] * s->decay[at + c]);
        part.at[i] = fma_(v, s->key[at + c], kept);
        sum = fma_(part.at[i], s->r[at + c], sum);
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
            const float y = advance(s, part, r * m.width, m.width, s->v[r * GROUPS + THREAD / GROUP_LANES]);
            if (LANE == 0 && used) row_of(m.y, first + r)[row] = y;
        }
    }
    store_part(part, state, group, row, used, m.width);
}

/* The generalized delta rule. Blocks: parts of a head's state matrix, heads, sequences. */
KERNEL(scan_rwkv7, THREADS)(Step step, View y, View r, View w, View k, View v, View a, const float *k_k,
                            const float *k_a, Slots state, int width) {
    SHARED(Staged, staged, 1);
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    const Wkv m = {y, r, w, k, v, a, k_k, k_a, width};
    if (width <= NARROW) scan_rows<NARROW / GROUP_LANES>(step, state, m, staged);
    else scan_rows<256 / GROUP_LANES>(step, state, m, staged);
}

/* x = x + v * sum(r * r_k * key) over the columns of a head. A group per head; rows in y. Groups beyond the last head
 * take part in its sum. */
KERNEL(bonus_rwkv7, THREADS)(Step step, View x, View r, View k, View v, View a, const float *k_a, const float *r_k,
                             int width, int heads) {
    const int t = BLOCK_Y, head = BLOCK_X * GROUPS + THREAD / GROUP_LANES;
    const int at = (head < heads ? head : heads - 1) * width;
    if (is_unused(step, x, t)) return;
    float sum = 0.0f;
    for (int c = at + LANE; c < at + width; c += GROUP_LANES) {
        const float key = key_of(row_of(k, t)[c], row_of(a, t)[c], k_a[c]);
        sum = fma_(row_of(r, t)[c] * r_k[c], key, sum);
    }
    sum = group_sum(sum);
    if (head >= heads) return;
    for (int c = at + LANE; c < at + width; c += GROUP_LANES)
        row_of(x, t)[c] = fma_(row_of(v, t)[c], sum, row_of(x, t)[c]);
}

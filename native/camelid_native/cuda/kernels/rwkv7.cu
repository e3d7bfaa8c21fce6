/* rwkv7: ops of RWKV-7 over heads (Peng et al., arXiv 2503.14456). Their meaning is in plan/op_rows_recurrent.py. */
#include "wkv.h"

/* Vectors of a head: u, a * u, key, decay and r by column; v by row of the state matrix. */
struct Staged7 {
    float unit[STAGED_FLOATS], correction[STAGED_FLOATS], key[STAGED_FLOATS], decay[STAGED_FLOATS], r[STAGED_FLOATS];
    float v[STAGED_ROWS * GROUPS];
};

DEVICE float key_of(float k, float a, float k_a) { return fma_(k * (a - 1.0f), k_a, k); }

struct Wkv7 {
    typedef Staged7 Staged;
    View y, r, w, k, v, a;
    const float *k_k, *k_a;
    int width;

    DEVICE int value_column() const { return BLOCK_Y * width; }
    /* 1 / |k_k * k|, the length at least 1e-12. */
    DEVICE float sum_of(int t) const {
        const int at = BLOCK_Y * width;
        float squares = 0.0f;
        for (int c = LANE; c < width; c += GROUP_LANES) {
            const float u = row_of(k, t)[at + c] * k_k[at + c];
            squares = fma_(u, u, squares);
        }
        const float length = sqrt_(group_sum(squares));
        return 1.0f / (length > 1e-12f ? length : 1e-12f);
    }
    DEVICE void stage_row(Staged *s, int t, int row, float scale) const {
        const int at = BLOCK_Y * width, to = row * width;
        for (int c = LANE; c < width; c += GROUP_LANES) {
            const float key = row_of(k, t)[at + c], rate = row_of(a, t)[at + c], unit = key * k_k[at + c] * scale;
            s->unit[to + c] = unit;
            s->correction[to + c] = rate * unit;
            s->key[to + c] = key_of(key, rate, k_a[at + c]);
            s->decay[to + c] = exp_(sigmoid_(row_of(w, t)[at + c]) * -0.60653066f);  /* exp(-1/2) */
            s->r[to + c] = row_of(r, t)[at + c];
        }
    }
    /* S = S * decay - (S @ u) * correction + v * key; returns S @ r. */
    template <int PER_LANE>
    DEVICE float advance(const Staged *s, StatePart<PER_LANE> &part, int row, float value) const {
        const int at = row * width;
        float held = 0.0f, sum = 0.0f;
        UNROLL
        for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
            if (c < width) held = fma_(part.at[i], s->unit[at + c], held);
        held = group_sum(held);
        UNROLL
        for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES) {
            if (c >= width) continue;
            const float kept = fma_(-held, s->correction[at + c], part.at[i] * s->decay[at + c]);
            part.at[i] = fma_(value, s->key[at + c], kept);
            sum = fma_(part.at[i], s->r[at + c], sum);
        }
        return group_sum(sum);
    }
};

/* The generalized delta rule. */
KERNEL(scan_rwkv7, THREADS)(Step step, View y, View r, View w, View k, View v, View a, const float *k_k,
                            const float *k_a, Slots state, int width) {
    SHARED(Staged7, staged, 1);
    scan_heads(step, state, Wkv7{y, r, w, k, v, a, k_k, k_a, width}, staged);
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

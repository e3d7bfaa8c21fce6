/* rwkv6: the scan of RWKV-6 (Peng et al., arXiv 2404.05892), and without `u` gated linear attention. Its meaning is in
 * plan/op_rows_recurrent.py. */
#include "wkv.h"

/* Vectors of a head: decay, key and r by column; v by row of the state matrix; the sum of r * u * k. */
struct Staged6 {
    float decay[STAGED_FLOATS], key[STAGED_FLOATS], r[STAGED_FLOATS], v[STAGED_ROWS * GROUPS], bonus[STAGED_ROWS];
};

/* `heads_each` heads share k and v. */
struct Wkv6 {
    typedef Staged6 Staged;
    View y, r, w, k, v;
    const float *u;
    int width, heads_each;

    DEVICE int value_column() const { return BLOCK_Y / heads_each * width; }
    /* The sum of r * u * k, 0 without u. */
    DEVICE float sum_of(int t) const {
        const int at = BLOCK_Y * width, key_at = value_column();
        float sum = 0.0f;
        for (int c = LANE; u && c < width; c += GROUP_LANES)
            sum = fma_(row_of(r, t)[at + c] * u[at + c], row_of(k, t)[key_at + c], sum);
        return group_sum(sum);
    }
    DEVICE void stage_row(Staged *s, int t, int to, float bonus) const {
        const int at = BLOCK_Y * width, key_at = value_column(), first = to * width;
        for (int c = LANE; c < width; c += GROUP_LANES) {
            const float key = row_of(k, t)[key_at + c], rate = exp_(row_of(w, t)[at + c]);
            s->decay[first + c] = exp_(-rate);
            s->key[first + c] = u ? key : -expm1_negative(-rate) * key;
            s->r[first + c] = row_of(r, t)[at + c];
        }
        if (LANE == 0) s->bonus[to] = bonus;
    }
    /* S = S * decay + v * key; returns S @ r, with u of the S before, and v times the bonus. */
    template <int PER_LANE>
    DEVICE float advance(const Staged *s, StatePart<PER_LANE> &part, int row, float value) const {
        const int at = row * width;
        float sum = 0.0f;
        UNROLL
        for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES) {
            if (c >= width) continue;
            const float before = part.at[i];
            part.at[i] = fma_(value, s->key[at + c], before * s->decay[at + c]);
            sum = fma_(u ? before : part.at[i], s->r[at + c], sum);
        }
        return fma_(value, s->bonus[row], group_sum(sum));
    }
};

KERNEL(scan_rwkv6, THREADS)(Step step, View y, View r, View w, View k, View v, const float *u, Slots state, int width,
                            int heads_each) {
    SHARED(Staged6, staged, 1);
    scan_heads(step, state, Wkv6{y, r, w, k, v, u, width, heads_each}, staged);
}

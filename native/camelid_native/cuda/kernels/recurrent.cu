/* recurrent: ops with state in a sequence's slot: read from its read slot (zeros without held rows), written to its
 * write slot after the last row, and float32 after every row. */
#include "act.h"
#include "block.h"
#include "step.h"

#define THREADS 256
#define GROUPS 8  /* of 32 lanes: rows of a state matrix in a block */

struct Span { int first, rows; };  /* a sequence's rows of the step */

DEVICE Span span_of(Step step, u32 sequence) {
    const u32 *w = sequence_at(step, sequence);
    return {(int)w[0], (int)w[1]};
}
DEVICE float *slot_at(Slots state, u32 slot) { return state.at + (long long)slot * state.width; }

/* Column c of row `at` of the rows held, followed by the rows of the step; `held` is the number in the slot. */
DEVICE float seen(const float *slot, View x, Group group, Span span, int held, int cols, int at, int c) {
    if (at >= held) return row_of(x, span.first + at - held)[c];
    return group.held ? slot[at * cols + c] : 0.0f;
}

/* y[t] = act(bias + sum over j < taps of weight[:, j] * x[t - taps + 1 + j]). A thread per column; rows in y. */
KERNEL(conv1d, THREADS)(Step step, View y, View x, const float *weight, const float *bias, Slots state, int cols,
                        int taps, int act) {
    const int t = BLOCK_Y, c = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, x, t) || c >= cols) return;
    const u32 sequence = row_at(step, t).sequence;
    const Span span = span_of(step, sequence);
    const Group group = group_at(step, sequence, state.group);
    const float *slot = slot_at(state, group.read);
    float sum = bias ? bias[c] : 0.0f;
    for (int j = 0; j < taps; j++)
        sum = fma_(seen(slot, x, group, span, taps - 1, cols, t - span.first + j, c), weight[c * taps + j], sum);
    row_of(y, t)[c] = activated(act, sum);
}

/* The last taps - 1 rows go to the write slot, which may be the read slot: rows move to earlier places, in order. */
KERNEL(conv_state, THREADS)(Step step, View x, Slots state, int cols, int taps) {
    const int c = BLOCK_X * THREADS + THREAD;
    if (BLOCK_Y >= count(step, SEQUENCES) || c >= cols) return;
    const Span span = span_of(step, (u32)BLOCK_Y);
    const Group group = group_at(step, (u32)BLOCK_Y, state.group);
    float *to = slot_at(state, group.write);
    for (int j = 0; j < taps - 1; j++)
        to[j * cols + c] = seen(slot_at(state, group.read), x, group, span, taps - 1, cols, span.rows + j, c);
}

/* One row of a head's state matrix, spread over the lanes of a group: lane l has columns l, l + 32, ... */
template <int PER_LANE> struct Held { float at[PER_LANE]; };

/* Calls f(t, head, p, held) for each row of the sequence, with row p of the head's state matrix, which f changes.
 * Groups beyond the last row of the matrix take part with zeros. */
template <int PER_LANE, class F>
DEVICE void scan_rows(Step step, Slots state, int head_rows, int width, F f) {
    const int head = BLOCK_Y, p = BLOCK_X * GROUPS + THREAD / GROUP_LANES;
    const Span span = span_of(step, (u32)BLOCK_Z);
    const Group group = group_at(step, (u32)BLOCK_Z, state.group);
    const long long at = ((long long)head * head_rows + p) * width;
    const float *from = slot_at(state, group.read) + at;
    float *to = slot_at(state, group.write) + at;
    Held<PER_LANE> held;
#pragma unroll
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        held.at[i] = group.held && p < head_rows && c < width ? from[c] : 0.0f;
    for (int t = span.first; t < span.first + span.rows; t++) f(t, head, p, held);
#pragma unroll
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        if (p < head_rows && c < width) to[c] = held.at[i];
}

/* (decay * S) @ v. */
template <int PER_LANE>
DEVICE float decayed_product(const Held<PER_LANE> &held, const float *v, int width, float decay) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        if (c < width) sum = fma_(held.at[i] * decay, v[c], sum);
    return group_sum(sum);
}

/* S = decay * S + by * in; returns S @ out. */
template <int PER_LANE>
DEVICE float advance(Held<PER_LANE> &held, const float *in, const float *out, int width, float decay, float by) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES) {
        if (c >= width) continue;
        held.at[i] = fma_(in[c], by, held.at[i] * decay);
        sum = fma_(held.at[i], out[c], sum);
    }
    return group_sum(sum);
}

DEVICE float time_step(View dt, const float *bias, int t, int head) {
    const float v = row_of(dt, t)[head];
    return softplus_(bias ? v + bias[head] : v);
}

struct Mamba2 { View y, x, b, c, dt; const float *a, *d, *dt_bias; int head_rows, width, heads_each; };

/* State space duality in recurrent form (Dao and Gu, arXiv 2405.21060). */
template <int PER_LANE> DEVICE void mamba2_row(Mamba2 m, int t, int head, int p, Held<PER_LANE> &held) {
    const float dt = time_step(m.dt, m.dt_bias, t, head), decay = exp_(dt * m.a[head]);
    const int at = head / m.heads_each * m.width, column = head * m.head_rows + p;
    const float x = p < m.head_rows ? row_of(m.x, t)[column] : 0.0f;
    const float sum = advance(held, row_of(m.b, t) + at, row_of(m.c, t) + at, m.width, decay, dt * x);
    if (LANE == 0 && p < m.head_rows) row_of(m.y, t)[column] = m.d ? fma_(m.d[head], x, sum) : sum;
}

template <int PER_LANE> DEVICE void mamba2(Step step, Slots state, Mamba2 m) {
    scan_rows<PER_LANE>(step, state, m.head_rows, m.width, [=](int t, int head, int p, Held<PER_LANE> &held) {
        mamba2_row<PER_LANE>(m, t, head, p, held);
    });
}

/* Blocks: parts of a head's state matrix, heads, sequences. `heads_each` heads share b and c. */
KERNEL(scan_mamba2, THREADS)(Step step, View y, View x, View b, View c, View dt, const float *a, const float *d,
                             const float *dt_bias, Slots state, int head_rows, int width, int heads_each) {
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    const Mamba2 m = {y, x, b, c, dt, a, d, dt_bias, head_rows, width, heads_each};
    if (width <= 4 * GROUP_LANES) mamba2<4>(step, state, m);
    else mamba2<16>(step, state, m);
}

struct Delta { View y, q, k, v, dt, beta; const float *a, *dt_bias; int head_rows, width, heads_each; float scale; };

/* The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464). */
template <int PER_LANE> DEVICE void delta_row(Delta m, int t, int head, int p, Held<PER_LANE> &held) {
    const float decay = exp_(m.a[head] * time_step(m.dt, m.dt_bias, t, head)), beta = row_of(m.beta, t)[head];
    const int at = head / m.heads_each * m.width, column = head * m.head_rows + p;
    const float *k = row_of(m.k, t) + at;
    const float v = p < m.head_rows ? row_of(m.v, t)[column] : 0.0f;
    const float wrong = v - decayed_product(held, k, m.width, decay);
    const float sum = advance(held, k, row_of(m.q, t) + at, m.width, decay, beta * wrong);
    if (LANE == 0 && p < m.head_rows) row_of(m.y, t)[column] = m.scale * sum;
}

template <int PER_LANE> DEVICE void delta(Step step, Slots state, Delta m) {
    scan_rows<PER_LANE>(step, state, m.head_rows, m.width, [=](int t, int head, int p, Held<PER_LANE> &held) {
        delta_row<PER_LANE>(m, t, head, p, held);
    });
}

/* As scan_mamba2; `heads_each` heads share q and k. */
KERNEL(scan_delta, THREADS)(Step step, View y, View q, View k, View v, View dt, View beta, const float *a,
                            const float *dt_bias, Slots state, int head_rows, int width, int heads_each, float scale) {
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    const Delta m = {y, q, k, v, dt, beta, a, dt_bias, head_rows, width, heads_each, scale};
    if (width <= 4 * GROUP_LANES) delta<4>(step, state, m);
    else delta<16>(step, state, m);
}

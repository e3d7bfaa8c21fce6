/* recurrent: ops with state in a sequence's slot: read from its read slot (zeros without held rows), written to its
 * write slot after the last row, and float32 after every row. */
#include "act.h"
#include "block.h"
#include "slots.h"

#undef LEAST_BLOCKS
#define LEAST_BLOCKS 3  /* four blocks spill registers of scan_mamba2 on sm_120 */
#define THREADS 256

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

/* y = x[t] + lerp[i] * (x[t - 1] - x[t]) for each row i of lerp, side by side; the columns of a part of the slot hold
 * the row before the step. A thread per column of x; rows in y. The thread of a sequence's first row reads the slot,
 * then writes it, so no thread reads it later. */
KERNEL(token_shift, THREADS)(Step step, View y, View x, const float *lerp, Slots state, int cols, int mixed, int part) {
    const int t = BLOCK_Y, c = BLOCK_X * THREADS + THREAD, at = part * cols + c;
    if (is_unused(step, x, t) || c >= cols) return;
    const u32 sequence = row_at(step, t).sequence;
    const Span span = span_of(step, sequence);
    const Group group = group_at(step, sequence, state.group);
    const bool is_first = t == span.first;
    const float now = row_of(x, t)[c], held = group.held ? slot_at(state, group.read)[at] : 0.0f;
    const float change = (is_first ? held : row_of(x, t - 1)[c]) - now;
    for (int i = 0; i < mixed; i++) row_of(y, t)[i * cols + c] = fma_(lerp[i * cols + c], change, now);
    if (is_first) slot_at(state, group.write)[at] = row_of(x, span.first + span.rows - 1)[c];
}

/* A scan with the names of both ops: `in` is b or k, `out` is c or q; `beta` and `scale` are of the delta rule alone.
 * `heads_each` heads share `in` and `out`. */
struct Scan {
    View y, x, in, out, dt, beta;
    const float *a, *d, *dt_bias;
    int head_rows, width, heads_each, a_cols, is_delta;
    float scale;
};

enum { STAGED_ROWS = 8, STAGED_FLOATS = STAGED_ROWS * 4 * GROUP_LANES };
/* Rows of the step in shared memory, so that their loads are not waited for one by one. */
struct Staged {
    float in[STAGED_FLOATS], out[STAGED_FLOATS], x[STAGED_ROWS * GROUPS], decay[STAGED_ROWS], gain[STAGED_ROWS];
};

DEVICE float time_step(Scan m, int t, int head) {
    const float v = row_of(m.dt, t)[head];
    return softplus_(m.dt_bias ? v + m.dt_bias[head] : v);
}

/* Stages n rows of the step, from `first` on. */
DEVICE void stage(Staged *s, Scan m, int first, int n) {
    const int head = BLOCK_Y, at = head / m.heads_each * m.width;
    SYNC();  /* the rows before are read */
    for (int r = THREAD / GROUP_LANES; r < n; r += GROUPS)
        for (int c = LANE; c < m.width; c += GROUP_LANES) {
            s->in[r * m.width + c] = row_of(m.in, first + r)[at + c];
            s->out[r * m.width + c] = row_of(m.out, first + r)[at + c];
        }
    if (THREAD < n * GROUPS) {
        const int p = BLOCK_X * GROUPS + THREAD % GROUPS, t = first + THREAD / GROUPS;
        s->x[THREAD] = p < m.head_rows ? row_of(m.x, t)[head * m.head_rows + p] : 0.0f;
    }
    if (THREAD < n) {
        const float dt = time_step(m, first + THREAD, head);
        s->decay[THREAD] = m.a_cols > 1 ? dt : exp_(dt * m.a[head]);
        s->gain[THREAD] = m.is_delta ? row_of(m.beta, first + THREAD)[head] : dt;
    }
    SYNC();
}

/* (decay * S) @ v. */
template <int PER_LANE>
DEVICE float decayed_product(const StatePart<PER_LANE> &part, const float *v, int width, float decay) {
    float sum = 0.0f;
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES)
        if (c < width) sum = fma_(part.at[i] * decay, v[c], sum);
    return group_sum(sum);
}

/* S = decay * S + by * in; returns S @ out. With `a`, the decay of a column is exp(decay * a). */
template <int PER_LANE>
DEVICE float advance(StatePart<PER_LANE> &part, const float *in, const float *out, int width, float decay, float by,
                     const float *a) {
    float sum = 0.0f;
    UNROLL
    for (int i = 0, c = LANE; i < PER_LANE; i++, c += GROUP_LANES) {
        if (c >= width) continue;
        part.at[i] = fma_(in[c], by, part.at[i] * (a ? exp_(decay * a[c]) : decay));
        sum = fma_(part.at[i], out[c], sum);
    }
    return group_sum(sum);
}

/* y of a staged row, for the group's row of the state matrix. */
template <int PER_LANE> DEVICE float scan_row(const Staged *s, Scan m, int r, StatePart<PER_LANE> &part) {
    const float *in = s->in + r * m.width, *out = s->out + r * m.width;
    const float x = s->x[r * GROUPS + THREAD / GROUP_LANES], decay = s->decay[r], gain = s->gain[r];
    if (m.is_delta) {
        const float wrong = x - decayed_product(part, in, m.width, decay);
        return m.scale * advance(part, in, out, m.width, decay, gain * wrong, 0);
    }
    const float *a = m.a_cols > 1 ? m.a + (long long)BLOCK_Y * m.width : 0;
    const float sum = advance(part, in, out, m.width, decay, gain * x, a);
    return m.d ? fma_(m.d[BLOCK_Y], x, sum) : sum;
}

/* The rows of a sequence, for the block's rows of a head's state matrix. Groups beyond its last row take part with
 * zeros. */
template <int PER_LANE> DEVICE void scan_rows(Step step, Slots state, Scan m, Staged *s) {
    const int p = BLOCK_X * GROUPS + THREAD / GROUP_LANES, row = BLOCK_Y * m.head_rows + p;
    const int most = STAGED_FLOATS / (PER_LANE * GROUP_LANES);
    const Span span = span_of(step, (u32)BLOCK_Z);
    const Group group = group_at(step, (u32)BLOCK_Z, state.group);
    StatePart<PER_LANE> part;
    load_part(part, state, group, row, p < m.head_rows ? m.width : 0, m.width);
    for (int done = 0; done < span.rows; done += most) {
        const int first = span.first + done, n = span.rows - done < most ? span.rows - done : most;
        stage(s, m, first, n);
        for (int r = 0; r < n; r++) {
            const float y = scan_row(s, m, r, part);
            if (LANE == 0 && p < m.head_rows) row_of(m.y, first + r)[row] = y;
        }
    }
    store_part(part, state, group, row, p < m.head_rows ? m.width : 0, m.width);
}

DEVICE void scan(Step step, Slots state, Scan m, Staged *s) {
    if (m.width <= 4 * GROUP_LANES) scan_rows<4>(step, state, m, s);
    else scan_rows<16>(step, state, m, s);
}

/* State space duality in recurrent form (Dao and Gu, arXiv 2405.21060). Blocks: parts of a head's state matrix, heads,
 * sequences. */
KERNEL(scan_mamba2, THREADS)(Step step, View y, View x, View b, View c, View dt, const float *a, const float *d,
                             const float *dt_bias, Slots state, int head_rows, int width, int heads_each,
                             int a_cols) {
    SHARED(Staged, staged, 1);
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    scan(step, state, {y, x, b, c, dt, dt, a, d, dt_bias, head_rows, width, heads_each, a_cols, false, 1.0f}, staged);
}

/* The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464). Blocks as for scan_mamba2. */
KERNEL(scan_delta, THREADS)(Step step, View y, View q, View k, View v, View dt, View beta, const float *a,
                            const float *dt_bias, Slots state, int head_rows, int width, int heads_each, float scale) {
    SHARED(Staged, staged, 1);
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    scan(step, state, {y, v, k, q, dt, beta, a, nullptr, dt_bias, head_rows, width, heads_each, 1, true, scale}, staged);
}

/* encoder: attention among the rows of the step, pooling, floats as results. */
#include "block.h"
#include "math.h"
#include "step.h"

#define THREADS 128
#define MOST_HEAD 512  /* columns of a head */

enum { FULL, CAUSAL, SYMMETRIC };
enum { MEAN, CLS, LAST };
enum { CHUNK = THREADS, PER_THREAD = MOST_HEAD / THREADS };

struct RowKeys { int start, end, self; };  /* rows of the sequence, from its first */

DEVICE RowKeys keys_of(int self, int rows, int mask, int window) {
    const int reach = window / 2, low = self - reach, high = self + reach + 1;
    if (mask == CAUSAL) return {0, self + 1, self};
    if (mask == FULL) return {0, rows, self};
    return {low > 0 ? low : 0, high < rows ? high : rows, self};
}

/* A softmax so far: the largest score, the sum of weights, and columns of the weighted sum of values. */
struct Total { float most, weights, values[PER_THREAD]; };

DEVICE float dot(const float *a, const float *b, int n) {
    float sum = 0.0f;
    for (int c = 0; c < n; c++) sum = fma_(a[c], b[c], sum);
    return sum;
}

/* Adds a chunk of n keys; `score` is of the thread's key, -infinity for none. `weights` is shared. */
DEVICE void add_chunk(Total *total, float score, int n, const float *values, int stride, int v_dim, float *weights) {
    const float most = max_(total->most, block_max<THREADS>(score));
    const float kept = exp_(total->most - most), weight = THREAD < n ? exp_(score - most) : 0.0f;
    weights[THREAD] = weight;
    total->weights = fma_(total->weights, kept, block_sum<THREADS>(weight));  /* with barriers after the weights */
    total->most = most;
    UNROLL
    for (int i = 0, c = THREAD; i < PER_THREAD; i++, c += THREADS) {
        if (c >= v_dim) continue;
        float sum = total->values[i] * kept;
        for (int j = 0; j < n; j++) sum = fma_(weights[j], values[(long long)j * stride + c], sum);
        total->values[i] = sum;
    }
}

/* Blocks: heads, rows. Chunks of keys start at the first that the row sees. */
KERNEL(attend_rows, THREADS)(Step step, View y, View q, View k, View v, const float *bias, int n_heads, int heads_each,
                             int q_dim, int v_dim, int mask, int window, int bias_reach, float scale) {
    SHARED(float, query, MOST_HEAD);
    SHARED(float, weights, CHUNK);
    const int t = BLOCK_Y, head = BLOCK_X;
    if (is_unused(step, q, t)) return;
    const u32 *sequence = sequence_at(step, row_at(step, t).sequence);
    const int first = (int)sequence[0];
    const RowKeys keys = keys_of(t - first, (int)sequence[1], mask, window);
    for (int c = THREAD; c < q_dim; c += THREADS) query[c] = row_of(q, t)[head * q_dim + c];
    Total total = {LOWEST, 0.0f, {}};
    for (int start = keys.start; start < keys.end; start += CHUNK) {
        const int own = start + THREAD, left = keys.end - start, n = left < CHUNK ? left : CHUNK;
        SYNC();  /* the query is there; the weights of the chunk before are read */
        float score = -infinity_();
        if (THREAD < n) {
            score = dot(query, row_of(k, first + own) + head / heads_each * q_dim, q_dim) * scale;
            const int away = own - keys.self;
            const int at = away < -bias_reach ? -bias_reach : away > bias_reach ? bias_reach : away;
            if (bias) score = score + bias[(at + bias_reach) * n_heads + head];
        }
        add_chunk(&total, score, n, row_of(v, first + start) + head / heads_each * v_dim, v.stride, v_dim, weights);
    }
    UNROLL
    for (int i = 0, c = THREAD; i < PER_THREAD; i++, c += THREADS)
        if (c < v_dim) row_of(y, t)[head * v_dim + c] = total.values[i] / total.weights;
}

/* y[o] = mean, first or last row of the rows of x of the output's sequence. A thread per column. */
KERNEL(pool, THREADS)(Step step, View y, View x, int kind, int cols) {
    const int o = BLOCK_Y, c = BLOCK_X * THREADS + THREAD;
    if (is_unused(step, y, o) || c >= cols) return;
    const u32 *sequence = sequence_at(step, output_at(step, o)[1]);
    const int first = (int)sequence[0], last = first + (int)sequence[1] - 1;
    float sum = 0.0f;
    for (int t = kind == LAST ? last : first; t <= (kind == CLS ? first : last); t++) sum = sum + row_of(x, t)[c];
    row_of(y, o)[c] = kind == MEAN ? sum / (float)(last - first + 1) : sum;
}

/* floats[o] = x[o]; result[o] = id 0, status 1 if a float is NaN, logit 0, log-sum-exp 0. */
KERNEL(emit, THREADS)(Step step, View x, float *floats, u32 *result, int cols) {
    const int o = BLOCK_Y;
    if (is_unused(step, x, o)) return;
    float n_nan = 0.0f;
    for (int c = THREAD; c < cols; c += THREADS) {
        const float v = row_of(x, o)[c];
        floats[(long long)o * cols + c] = v;
        n_nan += is_nan(v);
    }
    const bool has_nan = block_sum<THREADS>(n_nan) > 0.0f;
    if (THREAD < 4) result[4 * o + THREAD] = THREAD == 1 && has_nan;
}

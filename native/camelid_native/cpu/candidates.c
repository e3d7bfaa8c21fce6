/* candidates: an output's 256 largest logits (all, if they are fewer), largest first, ties to the lowest id: ids,
 * then logits; then mean and variance of the logits above -infinity.
 *
 * Threads share blocks of the rows for the largest of each chunk and the moments, then the outputs. */
#include "sampling.c"

enum { CANDIDATES_LOGITS };

typedef struct { double n, mean, squares; } moments;   /* squares: sum of (x - mean)^2 */

typedef struct {
    uint32_t n_outputs, vocab, n_chunks, n_blocks;
    moments *moments;   /* [n_outputs, n_blocks] */
    int32_t *tops;      /* [n_outputs, n_chunks] */
    uint8_t *places;
    uint64_t n_bytes;
} candidate_workspace;

static candidate_workspace lay_out_candidates(const cam_op *op, uint64_t scratch, uint32_t n_outputs,
                                              uint32_t n_threads) {
    uint32_t vocab = op->views[CANDIDATES_LOGITS].cols, n_chunks = n_chunks_of(vocab);
    candidate_workspace w = {.n_outputs = n_outputs, .vocab = vocab, .n_chunks = n_chunks};
    w.n_blocks = (n_chunks + BLOCK_CHUNKS - 1) / BLOCK_CHUNKS;
    uint64_t tops = whole_lines((uint64_t)n_outputs * w.n_blocks * sizeof(moments));
    uint64_t places = tops + whole_lines((uint64_t)n_outputs * n_chunks * sizeof(int32_t));
    w.moments = AT(moments, scratch), w.tops = AT(int32_t, scratch + tops);
    w.places = AT(uint8_t, scratch + places);
    w.n_bytes = places + n_threads * select_bytes(vocab);
    return w;
}

static uint64_t scratch_candidates(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    return lay_out_candidates(op, 0, program->capacity_outputs, n_threads).n_bytes;
}

/* Count, sum and sum of squares of x - origin, over the x above -infinity. */
static moments sums_about(const float *x, uint32_t n, float origin) {
    vf count = vf_set(0.0f), sum = count, squares = count;
    for (uint32_t i = 0; i < n; i += LANES) {
        vf own = vf_load(x + i), off = own - vf_set(origin);
        vi counts = own > vf_set(-__builtin_inff());
        off = vf_pick(counts, off, vf_set(0.0f));
        count += vf_pick(counts, vf_set(1.0f), vf_set(0.0f));
        sum += off;
        squares += off * off;
    }
    return (moments){vf_sum(count), vf_sum(sum), vf_sum(squares)};
}

/* Twice over a chunk: about zero for the mean, then about that, where nothing large cancels. */
static moments moments_of(const float *x) {
    moments zero = sums_about(x, CHUNK, 0.0f);
    if (zero.n == 0.0) return zero;
    float origin = (float)(zero.mean / zero.n);
    moments off = sums_about(x, CHUNK, origin);
    return (moments){off.n, origin + off.mean / off.n, off.squares - off.mean * off.mean / off.n};
}

/* Of two parts together (Chan, Golub and LeVeque, 1979). */
static moments join_moments(moments a, moments b) {
    double n = a.n + b.n, apart = b.mean - a.mean;
    if (b.n == 0.0) return a;
    return (moments){n, a.mean + apart * b.n / n, a.squares + b.squares + apart * apart * a.n * b.n / n};
}

static void measure_block(const candidate_workspace *w, const float *row, uint32_t output, uint32_t number) {
    int32_t *tops = w->tops + (uint64_t)output * w->n_chunks;
    uint32_t first = number * BLOCK_CHUNKS, end = least(first + BLOCK_CHUNKS, w->n_chunks);
    float copy[CHUNK];
    vi low = vi_set(INT32_MAX);
    moments own = {0};
    for (uint32_t c = first; c < end; c++) {
        const float *x = chunk_at(row, w->vocab, c, -__builtin_inff(), copy);
        tops[c] = chunk_top(x, &low);
        own = join_moments(own, moments_of(x));
    }
    w->moments[(uint64_t)output * w->n_blocks + number] = own;
}

static void list_candidates(const cam_op *op, const cam_run *run, const candidate_workspace *w, uint32_t output,
                            uint8_t *places) {
    const float *row = row_of(&op->views[CANDIDATES_LOGITS], output);
    const moments *blocks = w->moments + (uint64_t)output * w->n_blocks;
    uint32_t *words = (uint32_t *)run->result + w->n_outputs * RESULT_WORDS + (uint64_t)output * CANDIDATE_WORDS;
    selection found = select_first(row, w->vocab, w->tops + (uint64_t)output * w->n_chunks, CANDIDATES,
                                   (uint64_t *)places);
    for (uint32_t i = 0; i < found.n; i++) {
        words[i] = place_id(found.last[-(int64_t)i]);
        words[CANDIDATES + i] = word_of_float(row[words[i]]);
    }
    moments all = {0};
    for (uint32_t b = 0; b < w->n_blocks; b++) all = join_moments(all, blocks[b]);
    words[2 * CANDIDATES] = word_of_float((float)all.mean);
    words[2 * CANDIDATES + 1] = word_of_float((float)(all.n ? all.squares / all.n : 0.0));
}

static void op_candidates(const cam_op *op, const cam_run *run, uint32_t thread) {
    uint32_t n_outputs = run->step[STEP_OUTPUTS];
    candidate_workspace w = lay_out_candidates(op, run->program->scratch, n_outputs, run->n_threads);
    cam_range items = share(n_outputs * w.n_blocks, run, thread), outputs = share(n_outputs, run, thread);
    for (uint32_t i = items.start; i < items.end; i++)
        measure_block(&w, row_of(&op->views[CANDIDATES_LOGITS], i / w.n_blocks), i / w.n_blocks, i % w.n_blocks);
    cam_meet(run, thread);
    uint8_t *places = w.places + thread * select_bytes(w.vocab);
    for (uint32_t o = outputs.start; o < outputs.end; o++) list_candidates(op, run, &w, o, places);
}

/* candidates: ids and logits of an output's 256 largest logits, the largest first, ties to the lowest id;
 * then mean and variance of the logits above -infinity.
 *
 * Threads first share blocks of the rows for chunk maxima and moments, then share the outputs. */
enum { CANDIDATES_LOGITS };

typedef struct { double n, mean, squares; } moments;   /* squares: sum of (x - mean)^2 */

static workspace lay_out_candidates(const cam_op *op, uint64_t scratch, uint32_t n_outputs) {
    return lay_out(&op->views[CANDIDATES_LOGITS], scratch, n_outputs, 0, sizeof(moments));
}
static uint64_t scratch_candidates(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    workspace w = lay_out_candidates(op, 0, program->capacity_outputs);
    return scratch_end(&w, n_threads);
}
INLINE moments *moments_of(const workspace *w, uint32_t output) {
    return AT(moments, w->blocks_at) + (uint64_t)output * w->n_blocks;
}

typedef struct { vf n, sum, squares; } sums;

/* Adds a chunk's count, sum and sum of squares of x - origin, over the x above -infinity. */
INLINE void add_sums(sums *s, const float *x, vf origin) {
    for (int i = 0; i < CHUNK_VECTORS; i++) {
        vf own = vf_load(x + i * LANES), zero = vf_set(0.0f);
        vi counts = own > vf_set(-__builtin_inff());
        vf off = vf_pick(counts, own - origin, zero);
        s->n += vf_pick(counts, vf_set(1.0f), zero);
        s->sum += off;
        s->squares += off * off;
    }
}
static moments sums_about(const logits *l, uint32_t block, float origin) {
    cam_range chunks = block_chunks(l, block);
    float copy[CHUNK_IDS];
    sums s = {0};
    for (uint32_t c = chunks.start; c < chunks.end; c++)
        add_sums(&s, chunk_at(l, c, -__builtin_inff(), copy), vf_set(origin));
    return (moments){vf_sum(s.n), vf_sum(s.sum), vf_sum(s.squares)};
}

/* Two passes over a block: the mean, then moments about the mean, which avoids cancellation. */
static moments measure_block(const logits *l, uint32_t block) {
    moments about_zero = sums_about(l, block, 0.0f);
    if (about_zero.n == 0.0) return about_zero;
    float origin = (float)(about_zero.mean / about_zero.n);
    moments off = sums_about(l, block, origin);
    return (moments){off.n, origin + off.mean / off.n, off.squares - off.mean * off.mean / off.n};
}

/* Moments of the union of two parts (Chan, Golub and LeVeque, 1979). */
static moments join_moments(moments a, moments b) {
    double n = a.n + b.n, apart = b.mean - a.mean;
    if (b.n == 0.0) return a;
    return (moments){n, a.mean + apart * b.n / n, a.squares + b.squares + apart * apart * a.n * b.n / n};
}

static void list_candidates(const cam_run *run, const workspace *w, uint32_t output, uint32_t thread) {
    logits l = logits_of(w, output);
    uint32_t *words = (uint32_t *)run->result + w->n_outputs * RESULT_WORDS + output * CANDIDATE_WORDS;
    selection found = select_first(&l, CANDIDATES, places_of(w, thread));
    moments all = {0};
    for (uint32_t i = 0; i < found.n; i++) {
        words[i] = place_id(nth_place(found, i));
        words[CANDIDATES + i] = word_of_float(l.row[words[i]]);
    }
    for (uint32_t b = 0; b < w->n_blocks; b++) all = join_moments(all, moments_of(w, output)[b]);
    words[2 * CANDIDATES] = word_of_float((float)all.mean);
    words[2 * CANDIDATES + 1] = word_of_float(all.n ? (float)(all.squares / all.n) : 0.0f);
}

static void op_candidates(const cam_op *op, const cam_run *run, uint32_t thread) {
    workspace w = lay_out_candidates(op, run->program->scratch, run->step[STEP_OUTPUTS]);
    cam_range items = share(w.n_outputs * w.n_blocks, run, thread), outputs = share(w.n_outputs, run, thread);
    for (uint32_t i = items.start; i < items.end; i++) {
        logits l = logits_of(&w, i / w.n_blocks);
        find_tops(&l, i % w.n_blocks);
        moments_of(&w, i / w.n_blocks)[i % w.n_blocks] = measure_block(&l, i % w.n_blocks);
    }
    cam_meet(run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++) list_candidates(run, &w, o, thread);
}

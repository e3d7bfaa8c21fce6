/* sample: applies biases and penalties to an output's logits, then top k, top p and min p; the id is
 * argmax(logit / temperature + gumbel), ties to the lowest id.
 *
 * Four phases with meetings between: (1) threads share blocks of the rows and compute tops and sums of
 * exponentials; (2) threads share the outputs and draw among the few highest ids; (3) for draws over all ids,
 * threads share the blocks again; (4) threads share the outputs and write the results. Results do not depend
 * on the split: sums are per block, and the maximum of a draw is independent of order. */
#include "adjust.c"
#include "vmath.h"

enum { SAMPLE_LOGITS };
enum { SAMPLE_TOKENS };
enum { STATUS_OK, STATUS_NAN, STATUS_ZERO };
enum { RESULT_ID, RESULT_STATUS, RESULT_LOGIT, RESULT_LOG_SUM_EXP, RESULT_WORDS };
enum { CANDIDATE_WORDS = 2 * CANDIDATES + 2 };
static const float MOST_NOISE = 17.33f;   /* -log(-log(1 - 2^-25)) is 17.329 */

typedef struct {
    extremes keys;
    float sum;     /* of exp(logit - highest); 0 if the highest logit is not finite */
    score best;    /* of a draw over all ids: best so far, up to this block */
} sample_block;

/* State of an output's draw. */
typedef struct {
    const uint32_t *how;
    noise_key key;
    float temperature;
    double cutoff;    /* scores below are excluded (min p) */
    score best;       /* best logit / temperature + noise so far */
    int is_open;      /* 1: the draw is over all ids, and the untouched ids are still to be drawn */
    float top;        /* largest logit of the untouched ids */
    touched touched;
} drawing;

static workspace lay_out_sample(const cam_op *op, uint64_t scratch, uint32_t n_outputs) {
    return lay_out(&op->views[SAMPLE_LOGITS], scratch, n_outputs, sizeof(drawing), sizeof(sample_block));
}
static uint64_t scratch_sample(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    workspace w = lay_out_sample(op, 0, program->capacity_outputs);
    return scratch_end(&w, n_threads);
}
INLINE drawing *drawing_of(const workspace *w, uint32_t output) {
    return AT(drawing, w->outputs_at) + output;
}
INLINE sample_block *blocks_of(const workspace *w, uint32_t output) {
    return AT(sample_block, w->blocks_at) + (uint64_t)output * w->n_blocks;
}

/* Sum of exp(logit - largest) over a block. */
static float sum_exp(const logits *l, uint32_t block, float largest) {
    cam_range chunks = block_chunks(l, block);
    float copy[CHUNK_IDS];
    vf sum = vf_set(0.0f);
    for (uint32_t c = chunks.start; c < chunks.end; c++) {
        const float *x = chunk_at(l, c, -__builtin_inff(), copy);
        for (int i = 0; i < CHUNK_VECTORS; i++) sum += vf_exp(vf_load(x + i * LANES) - vf_set(largest));
    }
    return vf_sum(sum);
}

/* Address of an output's logits in the result. */
INLINE float *logits_result(const cam_run *run, const workspace *w, uint32_t output) {
    uint32_t words = RESULT_WORDS + (run->program->features & FEATURE_CANDIDATES ? CANDIDATE_WORDS : 0);
    return (float *)run->result + (uint64_t)w->n_outputs * words + (uint64_t)output * w->view->cols;
}

static void scan_block(const cam_run *run, const workspace *w, uint32_t output, uint32_t block) {
    logits l = logits_of(w, output);
    sample_block *own = blocks_of(w, output) + block;
    uint32_t start = block * BLOCK_IDS, n = least(BLOCK_IDS, l.vocab - start);
    own->keys = find_tops(&l, block);
    own->sum = is_finite_key(own->keys.highest) ? sum_exp(&l, block, value_of_key(own->keys.highest)) : 0.0f;
    if (run->program->features & FEATURE_ALL_LOGITS)
        memcpy(logits_result(run, w, output) + start, l.row + start, n * sizeof(float));
}

/* Updates `best`: NaN wins over the largest value, ties to the lowest id. */
INLINE void offer(score *best, score own) {
    int own_is_nan = own.value != own.value, best_is_nan = best->value != best->value;
    int is_equal = own_is_nan ? best_is_nan : own.value == best->value;
    if (is_equal ? own.id < best->id : own_is_nan || own.value > best->value) *best = own;
}

/* Score in a draw: score / temperature + noise; unchanged at temperature 0. */
INLINE score drawn(const drawing *d, score own) {
    if (d->temperature > 0.0f) own.value = own.value / d->temperature + gumbel(own.id, d->key);
    return own;
}

/* Number of leading scores whose probabilities sum to top p, at least one. */
static uint32_t count_alive(const score *list, uint32_t n, double top_p) {
    double total = 0.0, sum;
    uint32_t alive = 1;
    for (uint32_t i = 0; i < n; i++) total += exp_double(list[i].value - list[0].value);
    for (sum = 1.0 / total; alive < n && sum < top_p; alive++)
        sum += exp_double(list[alive].value - list[0].value) / total;
    return alive;
}

/* Draws from a sorted list; its first entry is the highest score of the row. */
static void draw_of_list(drawing *d, const score *list, uint32_t n) {
    double top_p = float_of_word(d->how[HOW_TOP_P]), min_p = float_of_word(d->how[HOW_MIN_P]);
    if (d->how[HOW_TOP_K] && top_p < 1.0) n = count_alive(list, n, top_p);
    d->cutoff = min_p > 0.0 ? list[0].value + log_double(min_p) : MINUS_INFINITY;
    d->best = drawn(d, list[0]);
    for (uint32_t i = 1; i < n; i++)
        if (!(list[i].value < d->cutoff)) offer(&d->best, drawn(d, list[i]));
}

/* Offers the first NaN of the row: in a draw over all ids it wins. */
static void offer_nan(drawing *d, const logits *l, const sample_block *blocks) {
    uint32_t block = 0;
    while (block < l->n_blocks && blocks[block].keys.lowest != KEY_OF_NAN) block++;
    if (block == l->n_blocks) return;
    uint32_t id = block * BLOCK_IDS;
    while (l->row[id] == l->row[id]) id++;
    offer(&d->best, (score){l->row[id], id});
}

/* Sets is_open if ids outside the list remain to be drawn. After a NaN, or if the largest logit is infinite,
 * no other id can win. */
static void open_draw(drawing *d, selection found) {
    uint32_t i = 0;
    while (i < found.n && is_touched(&d->touched, place_id(nth_place(found, i)))) i++;
    if (i == found.n || d->best.value != d->best.value) return;
    d->top = place_value(nth_place(found, i));
    d->is_open = d->temperature > 0.0f && is_finite_key(place_key(nth_place(found, i)));
}

static void draw_of_first(drawing *d, const logits *l, const sample_block *blocks, uint64_t *places) {
    uint32_t top_k = least(d->how[HOW_TOP_K], CANDIDATES), most = top_k ? top_k : 1;
    score list[MOST_WANTED];
    selection found = select_first(l, most + d->touched.n, places);
    uint32_t n = list_scores(found, &d->touched, most, list);
    draw_of_list(d, list, top_k ? least(n, top_k) : n);
    if (top_k) return;
    offer_nan(d, l, blocks);
    open_draw(d, found);
}

/* The last output of an output's sequence. */
static uint32_t last_output(const cam_run *run, uint32_t output, uint32_t n_outputs) {
    uint32_t sequence = output_words(run, output)[OUTPUT_SEQUENCE], last = output;
    for (uint32_t later = output + 1; later < n_outputs; later++)
        if (output_words(run, later)[OUTPUT_SEQUENCE] == sequence) last = later;
    return last;
}

static void draw_output(const cam_op *op, const cam_run *run, const workspace *w, uint32_t output,
                        uint32_t thread) {
    const uint32_t *how = how_of_output(run, output), position = output_words(run, output)[OUTPUT_POSITION];
    const cam_state *ring = &op->states[SAMPLE_TOKENS];
    uint32_t newest = output_words(run, last_output(run, output, w->n_outputs))[OUTPUT_POSITION];
    logits l = logits_of(w, output);
    drawing *d = drawing_of(w, output);
    *d = (drawing){.how = how, .temperature = float_of_word(how[HOW_TEMPERATURE])};
    d->key = (noise_key){how[HOW_SEED_LOW], how[HOW_SEED_HIGH], position + how[HOW_OFFSET], how[HOW_CHOICE]};
    add_biases(&d->touched, &l, how, run->step + run->program->biases_at);
    add_penalties(&d->touched, &l, how, ring_of_output(ring, run, output), ring->unit_rows, position, newest);
    draw_of_first(d, &l, blocks_of(w, output), places_of(w, thread));
}

/* Bar that (logit - top) / temperature + noise must exceed to win, lowered by a margin for float32
 * rounding. */
INLINE float bar_of(const drawing *d, score best) {
    double level = (double)d->top / d->temperature;
    return (float)(best.value - level - 1e-3 - 1e-14 * (level < 0.0 ? -level : level));
}
INLINE int is_hopeless(const drawing *d, float largest, float bar) {
    return largest < d->cutoff || (largest - d->top) / d->temperature + MOST_NOISE < bar;
}

/* Fast test that rejects nearly all ids. noise >= g implies -log u <= exp(-g), hence 1 - u <= exp(-g), since
 * 1 - u < -log u. So lead = exp(level - bar) - (1 - u) <= 0 proves that an id does not win, with one
 * exponential and no logarithm. Returns the largest lead. */
static float find_leads(const drawing *d, const float *x, uint32_t first_id, float bar, float *lead) {
    int32_t rest[CHUNK_IDS];   /* 1 - u = (rest + 0.5) * 2^-24 */
    for (uint32_t i = 0; i < CHUNK_IDS; i++)
        rest[i] = 0xFFFFFF - (int32_t)(philox(first_id + i, d->key) >> 8);
    vf most = vf_set(-1.0f);
    for (int i = 0; i < CHUNK_VECTORS; i++) {
        vf level = (vf_load(x + i * LANES) - vf_set(d->top)) / vf_set(d->temperature);
        vi own_rest;
        memcpy(&own_rest, rest + i * LANES, sizeof own_rest);
        vf own = vf_exp(level - vf_set(bar)) - (vi_float(own_rest) + vf_set(0.5f)) * vf_set(0x1p-24f);
        vf_store(lead + i * LANES, own);
        most = vf_max(most, own);
    }
    return vf_top(most);
}

static void draw_chunk(const drawing *d, const logits *l, uint32_t chunk, score *best) {
    float copy[CHUNK_IDS], lead[CHUNK_IDS];
    const float *x = chunk_at(l, chunk, -__builtin_inff(), copy);
    uint32_t first_id = chunk * CHUNK_IDS, n = least(CHUNK_IDS, l->vocab - first_id);
    if (find_leads(d, x, first_id, bar_of(d, *best), lead) <= 0.0f) return;
    for (uint32_t i = 0; i < n; i++)
        if (lead[i] > 0.0f && !(x[i] < d->cutoff) && !is_touched(&d->touched, first_id + i))
            offer(best, drawn(d, (score){x[i], first_id + i}));
}

/* Draws over a block's untouched ids; `best` is the score of some id and only increases. */
static void draw_block(const workspace *w, uint32_t output, uint32_t block, score *best) {
    const drawing *d = drawing_of(w, output);
    logits l = logits_of(w, output);
    cam_range chunks = block_chunks(&l, block);
    for (uint32_t c = chunks.start; c < chunks.end; c++)
        if (!is_hopeless(d, value_of_key(l.tops[c]), bar_of(d, *best))) draw_chunk(d, &l, c, best);
    blocks_of(w, output)[block].best = *best;
}

static void draw_blocks(const workspace *w, cam_range items) {
    score best = {0};
    for (uint32_t i = items.start; i < items.end; i++) {
        uint32_t output = i / w->n_blocks, block = i % w->n_blocks;
        if (i == items.start || block == 0) best = drawing_of(w, output)->best;
        if (drawing_of(w, output)->is_open) draw_block(w, output, block, &best);
    }
}

/* Extremes and log-sum-exp of a row, joined from its blocks in order. */
static double join_blocks(const sample_block *blocks, uint32_t n_blocks, extremes *keys) {
    *keys = blocks[0].keys;
    for (uint32_t b = 1; b < n_blocks; b++) {
        keys->lowest = blocks[b].keys.lowest < keys->lowest ? blocks[b].keys.lowest : keys->lowest;
        keys->highest = blocks[b].keys.highest > keys->highest ? blocks[b].keys.highest : keys->highest;
    }
    double top = value_of_key(keys->highest), sum = 0.0;
    for (uint32_t b = 0; b < n_blocks; b++)
        if (blocks[b].sum > 0.0f)
            sum += blocks[b].sum * exp_double(value_of_key(blocks[b].keys.highest) - top);
    return top + log_double(sum);
}

INLINE uint32_t status_of(extremes keys) {
    if (keys.lowest == KEY_OF_NAN || keys.highest == KEY_OF_INFINITY) return STATUS_NAN;
    return keys.lowest == 0 && keys.highest == 0 ? STATUS_ZERO : STATUS_OK;
}

static void finish_output(const cam_op *op, const cam_run *run, const workspace *w, uint32_t output) {
    const sample_block *blocks = blocks_of(w, output);
    const cam_state *ring = &op->states[SAMPLE_TOKENS];
    uint32_t position = output_words(run, output)[OUTPUT_POSITION], *words = (uint32_t *)run->result;
    score best = drawing_of(w, output)->best;
    extremes keys;
    for (uint32_t b = 0; drawing_of(w, output)->is_open && b < w->n_blocks; b++) offer(&best, blocks[b].best);
    if (last_output(run, output, w->n_outputs) == output)
        ring_of_output(ring, run, output)[position % ring->unit_rows] = best.id;
    words += output * RESULT_WORDS;
    words[RESULT_ID] = best.id;
    words[RESULT_LOGIT] = word_of_float(row_of(w->view, output)[best.id]);
    words[RESULT_LOG_SUM_EXP] = word_of_float((float)join_blocks(blocks, w->n_blocks, &keys));
    words[RESULT_STATUS] = status_of(keys);
}

static void op_sample(const cam_op *op, const cam_run *run, uint32_t thread) {
    workspace w = lay_out_sample(op, run->program->scratch, run->step[STEP_OUTPUTS]);
    cam_range items = share(w.n_outputs * w.n_blocks, run, thread), outputs = share(w.n_outputs, run, thread);
    for (uint32_t i = items.start; i < items.end; i++) scan_block(run, &w, i / w.n_blocks, i % w.n_blocks);
    cam_meet(run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++) draw_output(op, run, &w, o, thread);
    cam_meet(run, thread);
    draw_blocks(&w, items);
    cam_meet(run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++) finish_output(op, run, &w, o);
}

/* sample: of an output's logits, with biases and penalties, the top k, of these the fewest that sum to top p,
 * of these those within min p; id = argmax(logit / temperature + gumbel), ties to the lowest id.
 *
 * Threads share blocks of the rows. First they look at each block: the largest of each chunk, the sum of
 * exponentials. Then each draws for some of the outputs, which takes few ids; where all ids are in the draw,
 * threads share blocks once more. Last, each finishes some outputs. What comes of it does not depend on who
 * does what: sums are taken by block, and of draws the best is the best in any order. */
#include "adjust.c"
#include "vmath.h"

enum { SAMPLE_LOGITS };
enum { SAMPLE_TOKENS };
enum { STATUS_OK, STATUS_NAN, STATUS_ZERO };
enum { RESULT_ID, RESULT_STATUS, RESULT_LOGIT, RESULT_LOG_SUM_EXP, RESULT_WORDS };
enum { CANDIDATE_WORDS = 2 * CANDIDATES + 2 };
enum { BLOCK_CHUNKS = 32, BLOCK = BLOCK_CHUNKS * CHUNK };

static const float LOWEST_EXPONENT = -80.0f, HIGHEST_EXPONENT = 80.0f;
static const float MOST_NOISE = 17.33f;   /* -log(-log(1 - 2^-25)) is 17.329 */

typedef struct {
    int32_t lowest, highest;   /* keys */
    float sum;                 /* of exp(logit - highest); 0 where that is not finite */
    score best;                /* of a draw of all ids, in this block or before */
} block;

/* A draw that is under way. */
typedef struct {
    const uint32_t *how;
    noise_key key;
    double cutoff;    /* scores below are left out */
    score best;       /* so far, of logit / temperature + noise */
    int is_open;      /* every id takes part, and those that are not touched still have to */
    float top;        /* the largest logit of these */
    touched touched;
} drawing;

typedef struct {
    uint32_t n_outputs, vocab, n_chunks, n_blocks;
    drawing *drawings;   /* [n_outputs] */
    block *blocks;       /* [n_outputs, n_blocks] */
    int32_t *tops;       /* [n_outputs, n_chunks] */
    uint8_t *places;     /* select_bytes() for each thread */
    uint64_t n_bytes;
} workspace;

INLINE uint64_t whole_lines(uint64_t n_bytes) { return (n_bytes + 63) / 64 * 64; }

static workspace lay_out(const cam_op *op, uint64_t scratch, uint32_t n_outputs, uint32_t n_threads) {
    uint32_t vocab = op->views[SAMPLE_LOGITS].cols, n_chunks = n_chunks_of(vocab);
    workspace w = {.n_outputs = n_outputs, .vocab = vocab, .n_chunks = n_chunks};
    w.n_blocks = (n_chunks + BLOCK_CHUNKS - 1) / BLOCK_CHUNKS;
    uint64_t blocks = whole_lines(n_outputs * sizeof(drawing));
    uint64_t tops = blocks + whole_lines((uint64_t)n_outputs * w.n_blocks * sizeof(block));
    uint64_t places = tops + whole_lines((uint64_t)n_outputs * n_chunks * sizeof(int32_t));
    w.drawings = AT(drawing, scratch), w.blocks = AT(block, scratch + blocks);
    w.tops = AT(int32_t, scratch + tops), w.places = AT(uint8_t, scratch + places);
    w.n_bytes = places + n_threads * select_bytes(vocab);
    return w;
}

static uint64_t scratch_sample(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    return lay_out(op, 0, program->capacity_outputs, n_threads).n_bytes;
}

INLINE vf clamped(vf x) {   /* NaN: the lowest */
    vf low = vf_set(LOWEST_EXPONENT), high = vf_set(HIGHEST_EXPONENT);
    return vf_pick(x > low, vf_pick(x < high, x, high), low);
}

/* Sum of exp(logit - largest) over chunks `first` to `end`. */
static float sum_exp(const float *row, uint32_t vocab, uint32_t first, uint32_t end, float largest) {
    float copy[CHUNK];
    vf sum = vf_set(0.0f);
    for (uint32_t c = first; c < end; c++) {
        const float *x = chunk_at(row, vocab, c, -__builtin_inff(), copy);
        for (int i = 0; i < VECTORS; i++) sum += vf_exp(clamped(vf_load(x + i * LANES) - vf_set(largest)));
    }
    return vf_sum(sum);
}

INLINE int is_finite_key(int32_t key) { return key > key_of(-__builtin_inff()) && key < HIGHEST_KEY; }

static void scan_block(const workspace *w, const float *row, uint32_t output, uint32_t number) {
    int32_t *tops = w->tops + (uint64_t)output * w->n_chunks;
    uint32_t first = number * BLOCK_CHUNKS, end = least(first + BLOCK_CHUNKS, w->n_chunks);
    float copy[CHUNK];
    vi low = vi_set(INT32_MAX);
    block own = {.highest = LOWEST_KEY};
    for (uint32_t c = first; c < end; c++) {
        tops[c] = chunk_top(chunk_at(row, w->vocab, c, row[c * CHUNK], copy), &low);
        own.highest = tops[c] > own.highest ? tops[c] : own.highest;
    }
    own.lowest = ~vi_top(~low);
    if (is_finite_key(own.highest)) own.sum = sum_exp(row, w->vocab, first, end, key_value(own.highest));
    w->blocks[(uint64_t)output * w->n_blocks + number] = own;
}

/* Where the floats of all logits go in the result. */
INLINE float *logits_result(const cam_run *run, uint32_t n_outputs, uint32_t vocab, uint32_t output) {
    uint32_t words = RESULT_WORDS + (run->program->features & FEATURE_CANDIDATES ? CANDIDATE_WORDS : 0);
    return (float *)run->result + (uint64_t)n_outputs * words + (uint64_t)output * vocab;
}

static void keep_block(const cam_run *run, const workspace *w, const float *row, uint32_t output, uint32_t number) {
    if (!(run->program->features & FEATURE_ALL_LOGITS)) return;
    uint32_t start = number * BLOCK, n = least(BLOCK, w->vocab - start);
    memcpy(logits_result(run, w->n_outputs, w->vocab, output) + start, row + start, n * sizeof(float));
}

/* What argmax takes first: NaN, then the largest, and the lowest id of equal ones. */
INLINE void offer(score *best, score own) {
    int own_is_nan = own.value != own.value, best_is_nan = best->value != best->value;
    int is_equal = own_is_nan ? best_is_nan : own.value == best->value;
    if (is_equal ? own.id < best->id : own_is_nan || own.value > best->value) *best = own;
}

/* How many of the first scores sum to top p, at least one. */
static uint32_t count_alive(const score *list, uint32_t n, double top_p) {
    double total = 0.0, sum;
    uint32_t alive = 1;
    for (uint32_t i = 0; i < n; i++) total += exp_double(list[i].value - list[0].value);
    sum = 1.0 / total;
    for (; alive < n && sum < top_p; alive++) sum += exp_double(list[alive].value - list[0].value) / total;
    return alive;
}

/* A score's part in a draw. */
INLINE score drawn(const drawing *d, score own) {
    double temperature = float_of_word(d->how[HOW_TEMPERATURE]);
    if (temperature > 0.0) own.value = own.value / temperature + gumbel(own.id, d->key);
    return own;
}

static void draw_of_list(drawing *d, const score *list, uint32_t n) {
    double top_p = float_of_word(d->how[HOW_TOP_P]), min_p = float_of_word(d->how[HOW_MIN_P]);
    if (d->how[HOW_TOP_K] && top_p < 1.0) n = count_alive(list, n, top_p);
    d->cutoff = min_p > 0.0 ? list[0].value + log_double(min_p) : MINUS_INFINITY;
    d->best = drawn(d, list[0]);
    for (uint32_t i = 1; i < n; i++)
        if (!(list[i].value < d->cutoff)) offer(&d->best, drawn(d, list[i]));
}

/* Where all ids are in the draw, the first NaN wins. */
static void offer_nan(drawing *d, const workspace *w, const block *blocks, const float *row) {
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        if (blocks[b].lowest != LOWEST_KEY) continue;
        uint32_t id = b * BLOCK;
        while (row[id] == row[id]) id++;
        offer(&d->best, (score){row[id], id});
        return;
    }
}

static void open_draw(drawing *d, const workspace *w, const block *blocks, const float *row, selection found) {
    uint32_t i = 0;
    while (i < found.n && is_touched(&d->touched, place_id(found.last[-(int64_t)i]))) i++;
    offer_nan(d, w, blocks, row);
    if (i == found.n || d->best.value != d->best.value) return;
    d->top = key_value(place_key(found.last[-(int64_t)i]));
    d->is_open = float_of_word(d->how[HOW_TEMPERATURE]) > 0.0f && is_finite_key(key_of(d->top));
}

static void draw(const cam_op *op, const cam_run *run, const workspace *w, uint32_t output, uint8_t *places) {
    const uint32_t *how = how_of_output(run, output), vocab = w->vocab;
    const cam_state *ring = &op->states[SAMPLE_TOKENS];
    const float *row = row_of(&op->views[SAMPLE_LOGITS], output);
    uint32_t position = output_words(run, output)[OUTPUT_POSITION], top_k = least(how[HOW_TOP_K], CANDIDATES);
    drawing *d = &w->drawings[output];
    *d = (drawing){.how = how};
    d->key = (noise_key){how[HOW_SEED_LOW], how[HOW_SEED_HIGH], position + how[HOW_OFFSET], how[HOW_CHOICE]};
    add_biases(&d->touched, row, vocab, how, run->step + run->program->biases_at);
    add_penalties(&d->touched, row, vocab, how, ring_of_output(ring, run, output), ring->unit_rows, position);
    score list[MOST_WANTED];
    uint32_t most = top_k ? top_k : 1;
    selection found = select_first(row, vocab, w->tops + (uint64_t)output * w->n_chunks, most + d->touched.n,
                                   (uint64_t *)places);
    uint32_t n = list_scores(found, &d->touched, most, list);
    draw_of_list(d, list, top_k ? least(n, top_k) : n);
    if (!top_k) open_draw(d, w, w->blocks + (uint64_t)output * w->n_blocks, row, found);
}

/* What logit / temperature, counted from that of the top, must come to with noise so as to win. A little less,
 * for what float32 rounds away. */
INLINE float bar_of(const drawing *d, score best) {
    double level = (double)d->top / float_of_word(d->how[HOW_TEMPERATURE]);
    return (float)(best.value - level - 1e-3 - 1e-14 * (level < 0 ? -level : level));
}

static int is_hopeless(const drawing *d, float largest, float bar) {
    float temperature = float_of_word(d->how[HOW_TEMPERATURE]);
    return largest < d->cutoff || (largest - d->top) / temperature + MOST_NOISE < bar;
}

/* Noise >= g means that -log u <= exp(-g), and then 1 - u, which is less than -log u, is too: one exponential
 * and no logarithm tell of nearly all ids that they do not win. lead[i] > 0: of id i they do not. */
static float find_leads(const drawing *d, const float *x, uint32_t first_id, float bar, float *lead) {
    uint32_t words[CHUNK];
    for (uint32_t i = 0; i < CHUNK; i++) words[i] = 0xFFFFFF - (philox(first_id + i, d->key) >> 8);
    vf temperature = vf_set(float_of_word(d->how[HOW_TEMPERATURE])), most = vf_set(-1.0f);
    for (int i = 0; i < VECTORS; i++) {
        vi word;
        memcpy(&word, words + i * LANES, sizeof word);
        vf level = (vf_load(x + i * LANES) - vf_set(d->top)) / temperature;
        vf own = vf_exp(clamped(level - vf_set(bar))) - (vi_float(word) + vf_set(0.5f)) * vf_set(0x1p-24f);
        vf_store(lead + i * LANES, own);
        most = vf_max(most, own);
    }
    return vf_top(most);
}

static void draw_chunk(const drawing *d, const float *row, uint32_t vocab, uint32_t chunk, score *best) {
    float copy[CHUNK], lead[CHUNK];
    const float *x = chunk_at(row, vocab, chunk, -__builtin_inff(), copy);
    uint32_t first_id = chunk * CHUNK, n = least(CHUNK, vocab - first_id);
    if (find_leads(d, x, first_id, bar_of(d, *best), lead) <= 0.0f) return;
    for (uint32_t i = 0; i < n; i++)
        if (lead[i] > 0.0f && !(x[i] < d->cutoff) && !is_touched(&d->touched, first_id + i))
            offer(best, drawn(d, (score){x[i], first_id + i}));
}

/* Draws of all ids, of some blocks of the outputs. */
static void draw_blocks(const cam_op *op, const workspace *w, cam_range items) {
    score best = {0};
    for (uint32_t i = items.start; i < items.end; i++) {
        uint32_t output = i / w->n_blocks, number = i % w->n_blocks, end = least((number + 1) * BLOCK_CHUNKS, w->n_chunks);
        const drawing *d = &w->drawings[output];
        const float *row = row_of(&op->views[SAMPLE_LOGITS], output);
        const int32_t *tops = w->tops + (uint64_t)output * w->n_chunks;
        if (!d->is_open) continue;
        if (number == 0 || i == items.start) best = d->best;
        for (uint32_t c = number * BLOCK_CHUNKS; c < end; c++)
            if (!is_hopeless(d, key_value(tops[c]), bar_of(d, best))) draw_chunk(d, row, w->vocab, c, &best);
        w->blocks[i].best = best;
    }
}

static int is_last_of_sequence(const cam_run *run, uint32_t output, uint32_t n_outputs) {
    for (uint32_t later = output + 1; later < n_outputs; later++)
        if (output_words(run, later)[OUTPUT_SEQUENCE] == output_words(run, output)[OUTPUT_SEQUENCE]) return 0;
    return 1;
}

typedef struct { int32_t lowest, highest; double log_sum_exp; } row_facts;

/* Of a whole row, from its blocks in order. */
static row_facts join_blocks(const block *blocks, uint32_t n_blocks) {
    row_facts facts = {INT32_MAX, LOWEST_KEY, 0.0};
    for (uint32_t b = 0; b < n_blocks; b++) {
        facts.lowest = blocks[b].lowest < facts.lowest ? blocks[b].lowest : facts.lowest;
        facts.highest = blocks[b].highest > facts.highest ? blocks[b].highest : facts.highest;
    }
    double top = key_value(facts.highest), sum = 0.0;
    for (uint32_t b = 0; b < n_blocks; b++)
        if (blocks[b].sum > 0.0f) sum += blocks[b].sum * exp_double(key_value(blocks[b].highest) - top);
    facts.log_sum_exp = top + log_double(sum);
    return facts;
}

static uint32_t status_of(row_facts facts) {
    if (facts.lowest == LOWEST_KEY || facts.highest == HIGHEST_KEY) return STATUS_NAN;
    return facts.lowest == 0 && facts.highest == 0 ? STATUS_ZERO : STATUS_OK;
}

static void finish_output(const cam_op *op, const cam_run *run, const workspace *w, uint32_t output) {
    const block *blocks = w->blocks + (uint64_t)output * w->n_blocks;
    const drawing *d = &w->drawings[output];
    const cam_state *ring = &op->states[SAMPLE_TOKENS];
    uint32_t position = output_words(run, output)[OUTPUT_POSITION], words[RESULT_WORDS];
    row_facts facts = join_blocks(blocks, w->n_blocks);
    score best = d->best;
    for (uint32_t b = 0; d->is_open && b < w->n_blocks; b++) offer(&best, blocks[b].best);
    if (is_last_of_sequence(run, output, w->n_outputs))
        ring_of_output(ring, run, output)[position % ring->unit_rows] = best.id;
    words[RESULT_ID] = best.id, words[RESULT_STATUS] = status_of(facts);
    words[RESULT_LOGIT] = word_of_float(row_of(&op->views[SAMPLE_LOGITS], output)[best.id]);
    words[RESULT_LOG_SUM_EXP] = word_of_float((float)facts.log_sum_exp);
    memcpy(run->result + (uint64_t)output * sizeof words, words, sizeof words);
}

static void op_sample(const cam_op *op, const cam_run *run, uint32_t thread) {
    uint32_t n_outputs = run->step[STEP_OUTPUTS];
    workspace w = lay_out(op, run->program->scratch, n_outputs, run->n_threads);
    cam_range items = share(n_outputs * w.n_blocks, run, thread), outputs = share(n_outputs, run, thread);
    for (uint32_t i = items.start; i < items.end; i++) {
        const float *row = row_of(&op->views[SAMPLE_LOGITS], i / w.n_blocks);
        scan_block(&w, row, i / w.n_blocks, i % w.n_blocks);
        keep_block(run, &w, row, i / w.n_blocks, i % w.n_blocks);
    }
    cam_meet(run, thread);
    uint8_t *places = w.places + thread * select_bytes(w.vocab);
    for (uint32_t o = outputs.start; o < outputs.end; o++) draw(op, run, &w, o, places);
    cam_meet(run, thread);
    draw_blocks(op, &w, items);
    cam_meet(run, thread);
    for (uint32_t o = outputs.start; o < outputs.end; o++) finish_output(op, run, &w, o);
}

/* Sampling parameters of a sequence, and its logits after biases and penalties.
 *
 * Few ids are touched; their scores are kept beside the row of logits, which is not changed. Scores are
 * doubles, as in the reference backend. */
#include "philox.h"
#include "topk.c"

/* Words of a row of the step's section `sampling`, and of a record of its section `biases`. */
enum {
    HOW_TEMPERATURE, HOW_SEED_LOW, HOW_SEED_HIGH, HOW_CHOICE, HOW_OFFSET, HOW_TOP_K, HOW_TOP_P, HOW_MIN_P,
    HOW_REPEAT, HOW_FREQUENCY, HOW_PRESENCE, HOW_LAST_N, HOW_BIASES, HOW_FIRST_BIAS, HOW_WORDS
};
enum { BIAS_ID, BIAS_VALUE, BIAS_WORDS };

typedef struct { double value; uint32_t id; } score;
typedef struct { double value; uint32_t id, count; } touched_score;   /* count: in the window of penalties */
typedef struct { touched_score of[MOST_TOUCHED]; uint32_t n; } touched;

INLINE const uint32_t *how_of_output(const cam_run *run, uint32_t output) {
    const uint32_t *sequence = sequence_words(run, output_words(run, output)[OUTPUT_SEQUENCE]);
    return run->step + run->program->sampling_at + sequence[SEQUENCE_SAMPLING] * HOW_WORDS;
}
/* Ring of the sequence's token ids: the id at position p is ring[p % rows]. */
INLINE uint32_t *ring_of_output(const cam_state *ring, const cam_run *run, uint32_t output) {
    uint32_t slot = group_words(run, output_words(run, output)[OUTPUT_SEQUENCE], ring->group)[GROUP_WRITE];
    return AT(uint32_t, ring->at[0]) + (uint64_t)slot * ring->unit_rows;
}

INLINE int is_touched(const touched *t, uint32_t id) {
    for (uint32_t i = 0; i < t->n; i++)
        if (t->of[i].id == id) return 1;
    return 0;
}

/* Entry of a touched id, initialised with its logit; NULL if the id is not in the vocabulary. */
static touched_score *touch(touched *t, const logits *l, uint32_t id) {
    if (id >= l->vocab) return NULL;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->of[i].id == id) return &t->of[i];
    t->of[t->n] = (touched_score){.value = l->row[id], .id = id};
    return &t->of[t->n++];
}

static void add_biases(touched *t, const logits *l, const uint32_t *how, const uint32_t *biases) {
    const uint32_t *bias = biases + how[HOW_FIRST_BIAS] * BIAS_WORDS;
    for (uint32_t i = 0; i < least(how[HOW_BIASES], MOST_BIASES); i++, bias += BIAS_WORDS) {
        touched_score *own = touch(t, l, bias[BIAS_ID]);
        if (own) own->value += float_of_word(bias[BIAS_VALUE]);
    }
}

static void penalize(touched_score *own, const uint32_t *how) {
    double repeat = float_of_word(how[HOW_REPEAT]);
    own->value = own->value > 0.0 ? own->value / repeat : own->value * repeat;
    own->value -= own->count * (double)float_of_word(how[HOW_FREQUENCY]) + float_of_word(how[HOW_PRESENCE]);
}

static int is_penalized(const uint32_t *how) {
    return float_of_word(how[HOW_REPEAT]) != 1.0f || float_of_word(how[HOW_FREQUENCY]) != 0.0f ||
           float_of_word(how[HOW_PRESENCE]) != 0.0f;
}

/* Penalizes the ids at the last HOW_LAST_N positions before `position` in the ring, one of whose places is for the
 * draw at position `newest`. */
static void add_penalties(touched *t, const logits *l, const uint32_t *how, const uint32_t *ids,
                          uint32_t ring_rows, uint32_t position, uint32_t newest) {
    if (!is_penalized(how)) return;
    uint32_t first = newest < ring_rows ? 0 : newest + 1 - ring_rows;
    uint32_t n = least(least(how[HOW_LAST_N], MOST_LAST_N), position < first ? 0 : position - first);
    for (uint32_t p = position - n; p < position; p++) {
        touched_score *own = touch(t, l, ids[p % ring_rows]);
        if (own) own->count++;
    }
    for (uint32_t i = 0; i < t->n; i++)
        if (t->of[i].count) penalize(&t->of[i], how);
}

/* Order of scores: the largest first, ties to the lowest id, NaN last. */
INLINE int comes_before(score a, score b) {
    int a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return b_is_nan;
    return a_is_nan || a.value == b.value ? a.id < b.id : a.value > b.value;
}

static void insert(score *list, uint32_t n, score own) {
    for (; n > 0 && comes_before(own, list[n - 1]); n--) list[n] = list[n - 1];
    list[n] = own;
}

/* Sorted list of scores: the first `most` selected untouched ids, and all touched ids. */
static uint32_t list_scores(selection found, const touched *t, uint32_t most, score *list) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < found.n && n < most; i++) {
        score own = {place_value(nth_place(found, i)), place_id(nth_place(found, i))};
        if (!is_touched(t, own.id)) list[n++] = own;
    }
    for (uint32_t i = 0; i < t->n; i++) insert(list, n++, (score){t->of[i].value, t->of[i].id});
    return n;
}

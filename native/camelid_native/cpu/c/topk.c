/* Exact selection of a row's largest logits, in order; ties to the lowest id, NaN last.
 *
 * The row was read once, for the tops of its chunks. The `want`-th largest top is the cut: at least `want`
 * logits are not below it, and fewer than `want` chunks have logits above it. So few logits are above the cut
 * or among the first `want` equal to it; a heap sorts these. */
#include "logits.h"

enum { MOST_BIASES = 16, MOST_LAST_N = 64, MOST_TOUCHED = MOST_BIASES + MOST_LAST_N };
enum { CANDIDATES = 256, MOST_WANTED = CANDIDATES + MOST_TOUCHED };
enum { MOST_PLACES = MOST_WANTED * (CHUNK_IDS + 1) };

/* Place: a key and an id in one integer; a larger place is earlier in the order. */
INLINE uint64_t place_of(int32_t key, uint32_t id) {
    return (uint64_t)((uint32_t)key ^ 0x80000000u) << 32 | (uint32_t)~id;
}
INLINE uint32_t place_id(uint64_t place) { return ~(uint32_t)place; }
INLINE int32_t place_key(uint64_t place) { return (int32_t)((uint32_t)(place >> 32) ^ 0x80000000u); }
INLINE float place_value(uint64_t place) { return value_of_key(place_key(place)); }

static void sift_down(uint64_t *heap, uint32_t n, uint32_t at) {
    uint64_t place = heap[at];
    for (uint32_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= place) break;
        heap[at] = heap[child];
    }
    heap[at] = place;
}

/* Moves the first `want` of n places in order to the end of the array, the first place last. */
static void sort_first(uint64_t *places, uint32_t n, uint32_t want) {
    for (uint32_t at = n / 2; at-- > 0;) sift_down(places, n, at);
    for (uint32_t rest = n; rest > 1 && rest > n - want; rest--) {
        uint64_t first = places[0];
        places[0] = places[rest - 1];
        places[rest - 1] = first;
        sift_down(places, rest - 1, 0);
    }
}

static int32_t find_cut(const logits *l, uint32_t want, uint64_t *places) {
    if (l->n_chunks < want) return KEY_OF_NAN;
    for (uint32_t c = 0; c < l->n_chunks; c++) places[c] = place_of(l->tops[c], c);
    sort_first(places, l->n_chunks, want);
    return place_key(places[l->n_chunks - want]);
}

/* Collects the places above the cut and the first `want` equal to it. Returns their number. */
static uint32_t collect(const logits *l, int32_t cut, uint32_t want, uint64_t *places) {
    uint32_t n = 0, n_equal = 0;
    for (uint32_t c = 0; c < l->n_chunks; c++) {
        if (l->tops[c] < cut || (l->tops[c] == cut && n_equal == want)) continue;
        for (uint32_t id = c * CHUNK_IDS; id < least((c + 1) * CHUNK_IDS, l->vocab); id++) {
            int32_t key = key_of(l->row[id]);
            if (key < cut || (key == cut && n_equal == want)) continue;
            n_equal += key == cut;
            places[n++] = place_of(key, id);
        }
    }
    return n;
}

/* Bytes of a thread's array of places. */
static uint64_t places_bytes(const workspace *w) {
    return whole_lines(sizeof(uint64_t) * (w->n_chunks > MOST_PLACES ? w->n_chunks : MOST_PLACES));
}
static uint64_t scratch_end(const workspace *w, uint32_t n_threads) {
    return w->places_at + n_threads * places_bytes(w);
}
INLINE uint64_t *places_of(const workspace *w, uint32_t thread) {
    return AT(uint64_t, w->places_at + thread * places_bytes(w));
}

typedef struct { const uint64_t *first; uint32_t n; } selection;

INLINE uint64_t nth_place(selection found, uint32_t i) { return *(found.first - i); }

/* Selects the first `want` <= MOST_WANTED places of a row whose tops are known; all if the row has fewer. */
static selection select_first(const logits *l, uint32_t want, uint64_t *places) {
    uint32_t n = collect(l, find_cut(l, want, places), want, places);
    sort_first(places, n, least(n, want));
    return (selection){places + n - 1, least(n, want)};
}

/* The largest of a row of V floats, exactly: in order, of equal ones the lowest id first, NaN after all others.
 *
 * The row is read once, for the largest of every chunk of ids. The `want`-th largest of these is a cut: as
 * many floats are not below it, and fewer than `want` chunks have any above it. So what is above the cut, or
 * is one of the first that equal it, are few, and a heap brings them in order. */
#include "simd.h"

enum { CHUNK = 64, VECTORS = CHUNK / LANES };
enum { MOST_BIASES = 16, MOST_LAST_N = 64, MOST_TOUCHED = MOST_BIASES + MOST_LAST_N };
enum { CANDIDATES = 256, MOST_WANTED = CANDIDATES + MOST_TOUCHED };
enum { LOWEST_KEY = INT32_MIN, HIGHEST_KEY = 0x7F800000 };   /* of NaN and of infinity */
enum { MOST_PLACES = MOST_WANTED * (CHUNK + 1) };

/* Whole numbers in the order of floats: 0 for both zeros, NaN below all. */
INLINE vi keys(vf x) {
    vi bits = (vi)(x + vf_set(0.0f));  /* -0 + 0 is 0 */
    vi key = bits ^ ((bits >> 31) & INT32_MAX), is_number = x == x;
    return (key & is_number) | (vi_set(LOWEST_KEY) & ~is_number);
}
INLINE int32_t key_of(float x) {
    int32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return x == x ? bits ^ ((bits >> 31) & INT32_MAX) : LOWEST_KEY;
}
INLINE float key_value(int32_t key) {
    int32_t bits = key ^ ((key >> 31) & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
INLINE vi vi_max(vi a, vi b) { vi more = a > b; return (a & more) | (b & ~more); }
INLINE int32_t vi_top(vi v) {
    int32_t top = v[0];
    for (int i = 1; i < LANES; i++) top = v[i] > top ? v[i] : top;
    return top;
}

INLINE uint32_t n_chunks_of(uint32_t vocab) { return (vocab + CHUNK - 1) / CHUNK; }

/* The chunk's floats: where they stand, or of the last, copied and followed by `padding`. */
INLINE const float *chunk_at(const float *row, uint32_t vocab, uint32_t chunk, float padding, float *copy) {
    uint32_t start = chunk * CHUNK;
    if (vocab - start >= CHUNK) return row + start;
    for (uint32_t i = 0; i < CHUNK; i++) copy[i] = start + i < vocab ? row[start + i] : padding;
    return copy;
}

/* The highest key of a chunk; lanes of `low` get to the lowest that they meet. */
static int32_t chunk_top(const float *x, vi *low) {
    vi top = vi_set(LOWEST_KEY);
    for (int i = 0; i < VECTORS; i++) {
        vi key = keys(vf_load(x + i * LANES));
        top = vi_max(top, key);
        *low = ~vi_max(~*low, ~key);   /* ~ turns the order round */
    }
    return vi_top(top);
}

/* A key and an id in one number, the larger the earlier in order. */
INLINE uint64_t place_of(int32_t key, uint32_t id) {
    return (uint64_t)((uint32_t)key ^ 0x80000000u) << 32 | (uint32_t)~id;
}
INLINE uint32_t place_id(uint64_t place) { return ~(uint32_t)place; }
INLINE int32_t place_key(uint64_t place) { return (int32_t)((uint32_t)(place >> 32) ^ 0x80000000u); }

static void sift_down(uint64_t *heap, uint32_t n, uint32_t at) {
    uint64_t place = heap[at];
    for (uint32_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= place) break;
        heap[at] = heap[child];
    }
    heap[at] = place;
}

/* Brings the first `want` of n places in order to their end, the first last. */
static void sort_first(uint64_t *places, uint32_t n, uint32_t want) {
    for (uint32_t at = n / 2; at-- > 0;) sift_down(places, n, at);
    for (uint32_t rest = n; rest > 1 && rest > n - want; rest--) {
        uint64_t first = places[0];
        places[0] = places[rest - 1];
        places[rest - 1] = first;
        sift_down(places, rest - 1, 0);
    }
}

static int32_t find_cut(const int32_t *tops, uint32_t n_chunks, uint32_t want, uint64_t *places) {
    if (n_chunks < want) return LOWEST_KEY;
    for (uint32_t c = 0; c < n_chunks; c++) places[c] = place_of(tops[c], c);
    sort_first(places, n_chunks, want);
    return place_key(places[n_chunks - want]);
}

static uint32_t collect(const float *row, uint32_t vocab, const int32_t *tops, int32_t cut, uint32_t want,
                        uint64_t *places) {
    uint32_t n = 0, n_equal = 0;
    for (uint32_t c = 0; c < n_chunks_of(vocab); c++) {
        if (tops[c] < cut || (tops[c] == cut && n_equal == want)) continue;
        uint32_t end = (c + 1) * CHUNK < vocab ? (c + 1) * CHUNK : vocab;
        for (uint32_t id = c * CHUNK; id < end; id++) {
            int32_t key = key_of(row[id]);
            if (key < cut || (key == cut && n_equal == want)) continue;
            n_equal += key == cut;
            places[n++] = place_of(key, id);
        }
    }
    return n;
}

/* How many places are wanted room for. */
static uint64_t select_bytes(uint32_t vocab) {
    uint64_t n = n_chunks_of(vocab) > MOST_PLACES ? n_chunks_of(vocab) : MOST_PLACES;
    return (8 * n + 63) / 64 * 64;
}

typedef struct { const uint64_t *last; uint32_t n; } selection;   /* last[-i]: place i */

/* The first `want` <= MOST_WANTED places of a row with these highest keys by chunk; all, if they are fewer. */
static selection select_first(const float *row, uint32_t vocab, const int32_t *tops, uint32_t want,
                              uint64_t *places) {
    int32_t cut = find_cut(tops, n_chunks_of(vocab), want, places);
    uint32_t n = collect(row, vocab, tops, cut, want, places);
    uint32_t n_found = n < want ? n : want;
    sort_first(places, n, n_found);
    return (selection){places + n - 1, n_found};
}

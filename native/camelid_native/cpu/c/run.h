/* One run of a program: the arguments of a kernel, and access to the step. */
#pragma once
#include "abi.h"
#include "simd.h"
#include <stdatomic.h>

typedef struct cam_pool cam_pool;

enum { CACHE_LINE = 64 };

/* Units of a share that cam_take has claimed: from the start in the low half, from the end in the high half.
 * Each share has its own cache line, which its thread writes often and other threads seldom. */
typedef struct {
    _Atomic uint64_t ends;
    char beyond[CACHE_LINE - sizeof(uint64_t)];
} cam_taken;

/* A run; each thread has a copy. */
typedef struct {
    const cam_program *program;
    const uint32_t *step;
    uint8_t *result;      /* 16 bytes per output; then candidates; then logits or emitted floats */
    cam_pool *pool;
    cam_taken *taken;     /* one per thread's share; each meeting resets all to 0 */
    uint64_t number;      /* of the run, from 1 on */
    uint32_t n_threads;   /* threads of the current op */
} cam_run;

/* A kernel. Every thread of the op calls it with the thread's number; threads meet between two ops. */
typedef void cam_kernel(const cam_op *op, const cam_run *run, uint32_t thread);
/* Scratch bytes of a kernel, a multiple of 64. */
typedef uint64_t cam_scratch(const cam_op *op, const cam_program *program, uint32_t n_threads);

/* Barrier: waits until all threads of the op have called it; their writes are visible after it. */
void cam_meet(const cam_run *run, uint32_t thread);
/* Barrier before op `next`, which has one thread more if the host joins. */
void cam_meet_between(cam_run *run, uint64_t next);

enum { STEP_ROWS, STEP_SEQUENCES, STEP_OUTPUTS, STEP_UPDATES, STEP_COPIES, STEP_ORDINAL };
enum { ROW_SOURCE, ROW_VALUE, ROW_SEQUENCE, ROW_STATE_ROW, ROW_POSITIONS };
enum { SEQUENCE_FIRST_ROW, SEQUENCE_N_ROWS, SEQUENCE_ADAPTER, SEQUENCE_SAMPLING, SEQUENCE_GROUPS };
enum { GROUP_READ, GROUP_WRITE, GROUP_HELD, GROUP_WORDS };
enum { OUTPUT_ROW, OUTPUT_SEQUENCE, OUTPUT_POSITION, OUTPUT_WORDS };
enum { FROM_ID, FROM_RING, FROM_SIDE };

INLINE const uint32_t *row_words(const cam_run *run, uint32_t row) {
    return run->step + run->program->rows_at + row * run->program->row_words;
}
INLINE const uint32_t *sequence_words(const cam_run *run, uint32_t sequence) {
    return run->step + run->program->sequences_at + sequence * run->program->sequence_words;
}
INLINE const uint32_t *group_words(const cam_run *run, uint32_t sequence, uint32_t group) {
    return sequence_words(run, sequence) + SEQUENCE_GROUPS + GROUP_WORDS * group;
}
INLINE const uint32_t *output_words(const cam_run *run, uint32_t output) {
    return run->step + run->program->outputs_at + output * OUTPUT_WORDS;
}

/* Number of a view's rows in this step. */
INLINE uint32_t n_rows(const cam_run *run, const cam_view *view) {
    static const uint8_t words[] = {[ROWS_T] = STEP_ROWS, [ROWS_S] = STEP_SEQUENCES, [ROWS_O] = STEP_OUTPUTS};
    return run->step[words[view->rows]];
}
INLINE float *row_of(const cam_view *view, uint32_t row) {
    return AT(float, view->at) + (uint64_t)view->stride * row;
}

/* Bytes rounded up to whole cache lines, so that parts of scratch share no line. */
INLINE uint64_t whole_lines(uint64_t n_bytes) { return (n_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE; }

typedef struct { uint32_t start, end; } cam_range;

/* The i-th of n parts of a range; lengths of the parts differ by at most one. */
INLINE cam_range cut_range(cam_range all, uint32_t i, uint32_t n) {
    const uint64_t length = all.end - all.start;
    return (cam_range){all.start + (uint32_t)(length * i / n), all.start + (uint32_t)(length * (i + 1) / n)};
}

/* Parts of a range before an index, and from an index on. */
INLINE cam_range range_before(cam_range all, uint32_t place) {
    const uint32_t end = place < all.end ? place : all.end;
    return (cam_range){all.start, end > all.start ? end : all.start};
}
INLINE cam_range range_from(cam_range all, uint32_t place) {
    const uint32_t start = place > all.start ? place : all.start;
    return (cam_range){start < all.end ? start : all.end, all.end};
}

/* A thread's contiguous share of n units. Results never depend on the split. */
INLINE cam_range share(uint32_t n, const cam_run *run, uint32_t thread) {
    return cut_range((cam_range){0, n}, thread, run->n_threads);
}

/* Claims up to `most` of a range's unclaimed units, from its start or its end; empty if none are left. */
INLINE cam_range take_of(cam_taken *taken, cam_range all, uint32_t most, int from_end) {
    uint64_t ends = atomic_load_explicit(&taken->ends, memory_order_relaxed), after;
    uint32_t n, at_start, at_end;
    do {
        at_start = (uint32_t)ends, at_end = (uint32_t)(ends >> 32);
        n = all.end - all.start - at_start - at_end;
        if (n > most) n = most;
        after = ends + ((uint64_t)n << (from_end ? 32 : 0));
    } while (n && !atomic_compare_exchange_weak_explicit(&taken->ends, &ends, after, memory_order_relaxed,
                                                         memory_order_relaxed));
    const uint32_t start = from_end ? all.end - at_end - n : all.start + at_start;
    return (cam_range){start, start + n};
}

/* Claims up to `most` of n units for a thread: from the start of its own share, so that the thread reads one
 * stream, then from the ends of other shares, whose threads are slower or were delayed. Empty if none are
 * left. At most one loop over cam_take is allowed between two meetings. */
INLINE cam_range cam_take(const cam_run *run, uint32_t n, uint32_t most, uint32_t thread) {
    cam_range found = {0, 0};
    for (uint32_t i = 0; i < run->n_threads && found.start == found.end; i++) {
        const uint32_t whose = (thread + i) % run->n_threads;
        found = take_of(&run->taken[whose], share(n, run, whose), most, i > 0);
    }
    return found;
}

/* Thread pool of a WASM module. A module cannot start threads: the host starts workers, each with an instance
 * of the module over one shared memory, and each worker calls cam_work. With one thread there are no workers,
 * and a run ends before cam_submit returns. A module has one statically allocated pool. */
#include "pool.h"
#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

/* Polls of a word before a thread sleeps: measured, some 50 us; ops follow each other within a few us. */
enum { SPINS = 150000 };

/* Word that threads wait for, in a cache line of its own against false sharing. */
typedef struct {
    _Alignas(CACHE_LINE) atomic_uint value;
    atomic_uint n_asleep;
} word;

struct cam_pool {
    uint32_t n_threads;
    const cam_variant *variant;
    cam_run run;
    word ordinal;               /* twice the number of runs; an odd value ends the threads */
    word phase;                 /* number of meetings; see cam_meet */
    word done;                  /* number of ended runs */
    word n_met, n_finished;     /* numbers of threads */
    cam_taken taken[CAM_MOST_THREADS];  /* see cam_take */
};

static cam_pool pool;

/* Waits while a word equals a value. */
static void wait_while(word *at, uint32_t value) {
    for (uint32_t spins = 0; spins < SPINS; spins++)
        if (atomic_load(&at->value) != value) return;
    atomic_fetch_add(&at->n_asleep, 1);
    while (atomic_load(&at->value) == value)
        __builtin_wasm_memory_atomic_wait32((int *)(void *)&at->value, (int)value, -1);
    atomic_fetch_sub(&at->n_asleep, 1);
}

/* Sets a word and wakes its sleepers. A thread increments n_asleep before its last poll, so a writer that
 * reads 0 after storing the value has no thread to wake; a notify costs a call into the engine even then. */
static void set_word(word *at, uint32_t value) {
    atomic_store(&at->value, value);
    if (!atomic_load(&at->n_asleep)) return;
    __builtin_wasm_memory_atomic_notify((int *)(void *)&at->value, UINT32_MAX);
}

static void clear_taken(void) {
    for (uint32_t i = 0; i < pool.n_threads; i++) atomic_store(&pool.taken[i].ends, 0);
}

void cam_meet(const cam_run *run, uint32_t thread) {
    (void)thread;
    if (run->n_threads == 1) return;
    uint32_t phase = atomic_load(&pool.phase.value);
    if (atomic_fetch_add(&pool.n_met.value, 1) + 1 < run->n_threads) {
        wait_while(&pool.phase, phase);
        return;
    }
    atomic_store(&pool.n_met.value, 0);
    clear_taken();
    set_word(&pool.phase, phase + 1);
}

void cam_meet_between(cam_run *run, uint64_t next) {
    (void)next;
    cam_meet(run, 0);
}

/* Counts the calling thread as finished; the last one ends the run. `done` is always notified, as the host
 * may wait for it without being counted in n_asleep. */
static void finish(void) {
    if (atomic_fetch_add(&pool.n_finished.value, 1) + 1 < pool.n_threads) return;
    atomic_fetch_add(&pool.done.value, 1);
    __builtin_wasm_memory_atomic_notify((int *)(void *)&pool.done.value, UINT32_MAX);
}

cam_pool *cam_pool_new(uint32_t n_threads, const uint32_t *cpus, int with_host) {
    (void)cpus, (void)with_host;
    if (n_threads > CAM_MOST_THREADS) return 0;
    pool = (cam_pool){.n_threads = n_threads};
    return &pool;
}

int cam_pool_submit(cam_pool *unused, const cam_variant *variant, const cam_run *run) {
    (void)unused;
    pool.variant = variant;
    pool.run = *run;
    pool.run.pool = &pool;
    pool.run.taken = pool.taken;
    pool.run.n_threads = pool.n_threads;
    atomic_store(&pool.n_finished.value, 0);
    clear_taken();
    if (pool.n_threads > 1) set_word(&pool.ordinal, atomic_load(&pool.ordinal.value) + 2);
    else variant->execute(&pool.run, 0, 0), finish();
    return 1;
}

/* Waits for all runs. One host thread begins runs, one after the other, so the last run has ended when `done`
 * equals the number of begun runs. WASM has no queue of runs, so `most` is not used. */
void cam_pool_wait(cam_pool *unused, uint32_t most) {
    (void)unused, (void)most;
    const uint32_t n_begun = atomic_load(&pool.ordinal.value) / 2;
    for (uint32_t done; pool.n_threads > 1 && (done = atomic_load(&pool.done.value)) != n_begun;)
        wait_while(&pool.done, done);
}

void cam_pool_free(cam_pool *unused) {
    (void)unused;
    set_word(&pool.ordinal, atomic_load(&pool.ordinal.value) + 1);
}

/* Main loop of a thread, which returns after cam_stop. The host calls it once per worker, after cam_start; a
 * worker does not miss a run that began before its call. */
EXPORT void cam_work(cam_pool *unused, uint32_t thread) {
    (void)unused;
    for (uint32_t seen = 0;;) {
        wait_while(&pool.ordinal, seen);
        seen = atomic_load(&pool.ordinal.value);
        if (seen % 2) return;
        cam_run run = pool.run;
        pool.variant->execute(&run, thread, 0);
        finish();
    }
}

/* Address of the counter of ended runs; each end of a run notifies it. */
EXPORT const void *cam_done_at(cam_pool *unused) {
    (void)unused;
    return &pool.done.value;
}

/* A pool of threads. They spin a while for the next run, as one step follows another within
 * microseconds, then sleep until it comes. In a child of fork() they are started anew. */
#define _GNU_SOURCE
#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SPINS_BEFORE_YIELD = 4096 };
static const int64_t SPIN_NS = 100 * 1000;

struct cam_pool {
    uint32_t n_threads, *cpus, n_cpus;
    pthread_t *threads;
    pid_t owner;                  /* the process that the threads live in */
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    const cam_variant *variant;
    cam_run run;
    /* What threads wait for lies in lines of its own, so that no other writing disturbs them. */
    char before_ordinal[CACHE_LINE];
    atomic_uint ordinal;   /* of the run; odd numbers end the threads */
    char before_done[CACHE_LINE];
    atomic_uint n_done;    /* threads that have finished the run */
    char before_met[CACHE_LINE];
    atomic_uint n_met, phase;  /* of cam_meet */
    char after_met[CACHE_LINE];
};

typedef struct { cam_pool *pool; uint32_t thread, seen; } worker;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void cam_meet(const cam_run *run, uint32_t thread) {
    (void)thread;
    cam_pool *pool = run->pool;
    if (run->n_threads == 1) return;
    uint32_t phase = atomic_load_explicit(&pool->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->n_met, 1, memory_order_acq_rel) + 1 == run->n_threads) {
        atomic_store_explicit(&pool->n_met, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->phase, phase + 1, memory_order_release);
        return;
    }
    /* On a machine with other work the last thread may not be running at all: then spinning only keeps it
     * from the processor that it waits for. */
    for (uint32_t spins = 0; atomic_load_explicit(&pool->phase, memory_order_acquire) == phase; spins++) {
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    }
}

static void pin(const cam_pool *pool, uint32_t thread) {
#if defined(__linux__)
    if (!pool->n_cpus) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(pool->cpus[thread % pool->n_cpus], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
    (void)pool, (void)thread;
#endif
}

static uint32_t next_run(cam_pool *pool, uint32_t seen) {
    int64_t until = now_ns() + SPIN_NS;
    for (uint32_t spins = 0; spins % 64 || now_ns() < until; spins++) {
        uint32_t ordinal = atomic_load_explicit(&pool->ordinal, memory_order_acquire);
        if (ordinal != seen) return ordinal;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->ordinal) == seen) pthread_cond_wait(&pool->begun, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return atomic_load(&pool->ordinal);
}

static void finish(cam_pool *pool) {
    if (atomic_fetch_add_explicit(&pool->n_done, 1, memory_order_acq_rel) + 1 < pool->n_threads) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->ended);
    pthread_mutex_unlock(&pool->lock);
}

static void *work(void *argument) {
    worker me = *(worker *)argument;
    free(argument);
    pin(me.pool, me.thread);
    for (;;) {
        me.seen = next_run(me.pool, me.seen);
        if (me.seen % 2) return NULL;
        me.pool->variant->execute(&me.pool->run, me.thread);
        finish(me.pool);
    }
}

static void begin(cam_pool *pool, uint32_t by) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->ordinal, by, memory_order_release);
    pthread_cond_broadcast(&pool->begun);
    pthread_mutex_unlock(&pool->lock);
}

/* Ends the first n threads; the ordinal is even again, so that others can be started. */
static void end_threads(cam_pool *pool, uint32_t n) {
    begin(pool, 1);
    for (uint32_t i = 0; i < n; i++) pthread_join(pool->threads[i], NULL);
    atomic_fetch_add(&pool->ordinal, 1);
}

static int start_thread(cam_pool *pool, uint32_t thread) {
    worker *each = malloc(sizeof *each);
    if (!each) return 0;
    *each = (worker){pool, thread, atomic_load(&pool->ordinal)};
    if (pthread_create(&pool->threads[thread], NULL, work, each) == 0) return 1;
    free(each);
    return 0;
}

/* Starts all threads; if one cannot be, ends the others and returns 0. */
static int start(cam_pool *pool) {
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begun, NULL);
    pthread_cond_init(&pool->ended, NULL);
    atomic_store(&pool->n_met, 0);
    atomic_store(&pool->n_done, pool->n_threads);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        if (!start_thread(pool, i)) {
            end_threads(pool, i);
            return 0;
        }
    pool->owner = getpid();
    return 1;
}

static void release(cam_pool *pool) {
    free(pool->threads);
    free(pool->cpus);
    free(pool);
}

cam_pool *cam_pool_new(uint32_t n_threads, const uint32_t *cpus) {
    cam_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->n_threads = n_threads;
    pool->threads = calloc(n_threads, sizeof *pool->threads);
    pool->cpus = calloc(n_threads, sizeof *pool->cpus);
    if (pool->cpus && cpus) memcpy(pool->cpus, cpus, n_threads * sizeof *cpus), pool->n_cpus = n_threads;
    if (pool->threads && pool->cpus && start(pool)) return pool;
    release(pool);
    return NULL;
}

int cam_pool_submit(cam_pool *pool, const cam_variant *variant, const cam_run *run) {
    if (pool->owner != getpid() && !start(pool)) return 0;  /* threads do not survive a fork */
    pool->variant = variant;
    pool->run = *run;
    pool->run.pool = pool;
    pool->run.n_threads = pool->n_threads;
    atomic_store(&pool->n_done, 0);
    begin(pool, 2);
    return 1;
}

void cam_pool_wait(cam_pool *pool) {
    if (pool->owner != getpid()) return;  /* what was under way stayed in the parent */
    int64_t until = now_ns() + SPIN_NS;
    for (uint32_t spins = 0; spins % 64 || now_ns() < until; spins++) {
        if (atomic_load_explicit(&pool->n_done, memory_order_acquire) >= pool->n_threads) return;
        sched_yield();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->n_done) < pool->n_threads) pthread_cond_wait(&pool->ended, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void cam_pool_free(cam_pool *pool) {
    if (pool->owner == getpid()) end_threads(pool, pool->n_threads);
    release(pool);
}

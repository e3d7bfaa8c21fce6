/* A pool of threads. Runs may wait behind the one under way, and begin when that has ended, without their
 * host. Threads spin a while for the next run, as one step follows another within microseconds, then sleep
 * until it comes. In a child of fork() they are started anew. */
#define _GNU_SOURCE
#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Looks at a word before a thread sleeps. Where other work has the processor of the thread that is waited
 * for, looking on keeps both from it, and each sched_yield gives away a slice of some milliseconds. */
enum { LOOKS = 8192 };

/* What threads wait for, and which only grows, lies in lines of its own, so that no other writing disturbs
 * them. */
typedef struct {
    char before[CACHE_LINE];
    atomic_ullong value;
    atomic_uint n_asleep;
    char after[CACHE_LINE];
    uint64_t wanted;          /* under the lock: the least that a sleeper waits for */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} word;

typedef struct { const cam_variant *variant; cam_run run; } order;

struct cam_pool {
    uint32_t n_threads, *cpus, n_cpus;
    pthread_t *threads;
    pid_t owner;              /* the process that the threads live in */
    order orders[CAM_MOST_RUNS];  /* run n is orders[n % CAM_MOST_RUNS] */
    word ordinal;             /* twice the runs that were begun; an odd number ends the threads after them */
    word ended;               /* runs */
    word phase;               /* of cam_meet */
    atomic_ullong n_finished; /* runs, counted by every thread */
    char between[CACHE_LINE];
    atomic_uint n_met;
    char and_between[CACHE_LINE];
    cam_taken *taken;         /* one a thread; see cam_take */
};

typedef struct { cam_pool *pool; uint32_t thread; uint64_t seen; } worker;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void start_word(word *at) {
    atomic_store(&at->value, 0);
    at->wanted = 0;
    atomic_store(&at->n_asleep, 0);
    pthread_mutex_init(&at->lock, NULL);
    pthread_cond_init(&at->changed, NULL);
}

/* Sleeps until a word has at least a value, and is not woken before. */
static void sleep_until(word *at, uint64_t value) {
    pthread_mutex_lock(&at->lock);
    atomic_fetch_add(&at->n_asleep, 1);
    for (uint64_t now; (now = atomic_load(&at->value)) < value;) {
        if (at->wanted <= now) pthread_cond_broadcast(&at->changed);  /* before it is overwritten */
        if (at->wanted <= now || at->wanted > value) at->wanted = value;
        pthread_cond_wait(&at->changed, &at->lock);
    }
    atomic_fetch_sub(&at->n_asleep, 1);
    pthread_mutex_unlock(&at->lock);
}

static void wait_until(word *at, uint64_t value) {
    for (uint32_t i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&at->value, memory_order_acquire) >= value) return;
        relax();
    }
    sleep_until(at, value);
}

/* A thread counts itself among the sleepers before it looks a last time: whoever sees none, after the new
 * value is there, has none to wake. No sleeper wants less than `wanted`: all are woken when that has come, by
 * who made it so or by the next who sleeps, and say anew what they want. */
static void add(word *at, uint64_t more) {
    const uint64_t now = atomic_fetch_add(&at->value, more) + more;
    if (!atomic_load(&at->n_asleep)) return;
    pthread_mutex_lock(&at->lock);
    if (now >= at->wanted) pthread_cond_broadcast(&at->changed);
    pthread_mutex_unlock(&at->lock);
}

static void clear_taken(cam_pool *pool) {
    for (uint32_t i = 0; i < pool->n_threads; i++)
        atomic_store_explicit(&pool->taken[i].ends, 0, memory_order_relaxed);
}

void cam_meet(const cam_run *run, uint32_t thread) {
    (void)thread;
    cam_pool *pool = run->pool;
    if (run->n_threads == 1) return;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->n_met, 1, memory_order_acq_rel) + 1 < run->n_threads) {
        wait_until(&pool->phase, phase + 1);
        return;
    }
    atomic_store_explicit(&pool->n_met, 0, memory_order_relaxed);
    clear_taken(pool);
    add(&pool->phase, 1);
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

/* All meet before one counts, so that none counts for the next run before. */
static void finish(const cam_run *run, uint32_t thread) {
    cam_pool *pool = run->pool;
    cam_meet(run, thread);
    if ((atomic_fetch_add(&pool->n_finished, 1) + 1) % pool->n_threads == 0) add(&pool->ended, 1);
}

static void *work(void *argument) {
    worker me = *(worker *)argument;
    free(argument);
    pin(me.pool, me.thread);
    for (;; me.seen += 2) {
        wait_until(&me.pool->ordinal, me.seen + 1);
        if (atomic_load(&me.pool->ordinal.value) == me.seen + 1) return NULL;
        const order *next = &me.pool->orders[(me.seen / 2 + 1) % CAM_MOST_RUNS];
        next->variant->execute(&next->run, me.thread);
        finish(&next->run, me.thread);
    }
}

/* Ends the first n threads. */
static void end_threads(cam_pool *pool, uint32_t n) {
    add(&pool->ordinal, 1);
    for (uint32_t i = 0; i < n; i++) pthread_join(pool->threads[i], NULL);
}

static int start_thread(cam_pool *pool, uint32_t thread) {
    worker *each = malloc(sizeof *each);
    if (!each) return 0;
    *each = (worker){pool, thread, 0};
    if (pthread_create(&pool->threads[thread], NULL, work, each) == 0) return 1;
    free(each);
    return 0;
}

/* Starts all threads; if one cannot be, ends the others and returns 0. */
static int start(cam_pool *pool) {
    start_word(&pool->ordinal);
    start_word(&pool->ended);
    start_word(&pool->phase);
    atomic_store(&pool->n_finished, 0);
    atomic_store(&pool->n_met, 0);
    clear_taken(pool);
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
    free(pool->taken);
    free(pool);
}

cam_pool *cam_pool_new(uint32_t n_threads, const uint32_t *cpus) {
    cam_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->n_threads = n_threads;
    pool->threads = calloc(n_threads, sizeof *pool->threads);
    pool->cpus = calloc(n_threads, sizeof *pool->cpus);
    pool->taken = calloc(n_threads, sizeof *pool->taken);
    if (pool->cpus && cpus) memcpy(pool->cpus, cpus, n_threads * sizeof *cpus), pool->n_cpus = n_threads;
    if (pool->threads && pool->cpus && pool->taken && start(pool)) return pool;
    release(pool);
    return NULL;
}

int cam_pool_submit(cam_pool *pool, const cam_variant *variant, const cam_run *run) {
    if (pool->owner != getpid() && !start(pool)) return 0;  /* threads do not survive a fork */
    order *next = &pool->orders[(atomic_load(&pool->ordinal.value) / 2 + 1) % CAM_MOST_RUNS];
    *next = (order){variant, *run};
    next->run.pool = pool;
    next->run.taken = pool->taken;
    next->run.n_threads = pool->n_threads;
    add(&pool->ordinal, 2);
    return 1;
}

/* The host sleeps at once: its looking would take a processor from a thread. */
void cam_pool_wait(cam_pool *pool, uint32_t most) {
    if (pool->owner != getpid()) return;  /* what was under way stayed in the parent */
    const uint64_t n_begun = atomic_load(&pool->ordinal.value) / 2;
    if (n_begun > most) sleep_until(&pool->ended, n_begun - most);
}

void cam_pool_free(cam_pool *pool) {
    if (pool->owner == getpid()) end_threads(pool, pool->n_threads);
    release(pool);
}

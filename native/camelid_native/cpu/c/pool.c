/* Thread pool with a queue of runs. A queued run begins when the run before it has ended, without a call from
 * the host. Threads poll for the next run before they sleep, as steps follow each other within microseconds.
 * In a child of fork() the threads are started again.
 *
 * With `with_host`, the pool has one thread fewer, and the host (the thread that calls cam_pool_wait)
 * computes while it waits: it joins between two ops and leaves when the awaited run has ended. The pool's
 * threads continue without the host, so that the host's other work never delays them. */
#define _GNU_SOURCE
#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Polls of a counter before a thread sleeps. Their number is limited, since polling delays the awaited thread
 * if both run on one processor; sched_yield between polls would cost a time slice of some milliseconds. */
enum { SPIN_POLLS = 8192 };

/* Event counter: threads wait until it reaches a value. It never decreases, and has cache lines of its own
 * against false sharing. */
typedef struct {
    char before[CACHE_LINE];
    atomic_ullong value;
    atomic_uint n_asleep;
    char after[CACHE_LINE];
    uint64_t wanted;          /* guarded by `lock`: the smallest value that a sleeping thread waits for */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} event_counter;

typedef struct { const cam_variant *variant; cam_run run; } queued_run;

struct cam_pool {
    uint32_t n_threads;       /* including the host, if the host computes */
    uint32_t n_workers, *cpus, n_cpus;  /* n_workers: threads that the pool started */
    pthread_t *threads;
    pid_t owner;              /* process that started the threads */
    queued_run queue[CAM_MOST_RUNS];  /* run n is queue[n % CAM_MOST_RUNS] */
    event_counter ordinal;    /* twice the number of submitted runs; +1 ends the threads after the last run */
    event_counter ended;      /* number of ended runs */
    event_counter phase;      /* number of completed barriers; see cam_meet */
    atomic_uint n_arrived;    /* threads that have arrived at the current barrier */
    char between[CACHE_LINE];
    atomic_uint n_participants;  /* threads of the current op; changes only while all are at a barrier */
    atomic_ullong awaited;    /* number of the run that the host waits for; 0: the host does not wait */
    atomic_uint is_helped;    /* 1 while a host thread is in help_until, which admits one at a time */
    atomic_uint n_waiting;    /* host threads in cam_pool_wait */
    atomic_ullong host_phase; /* phase at which the host joins; 0: the host has not joined */
    cam_run host;             /* run that the host joins before op `host_op` */
    uint64_t host_op;
    cam_taken *taken;         /* one per thread; see cam_take */
};

typedef struct { cam_pool *pool; uint32_t thread; } worker;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sets the floating-point mode: round to nearest, subnormals enabled. Some libraries set a thread to flush
 * subnormals, but a row's result must not depend on the thread. Returns the previous mode. */
#if defined(__x86_64__)
enum { FLOAT_MODE = 0x1F80 };
static uint64_t set_float_mode(uint64_t mode) {
    const uint64_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr((uint32_t)mode);
    return before;
}
#elif defined(__aarch64__)
enum { FLOAT_MODE = 0 };
static uint64_t set_float_mode(uint64_t mode) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
    return before;
}
#else
enum { FLOAT_MODE = 0 };
static uint64_t set_float_mode(uint64_t mode) { return mode; }
#endif

static void init_counter(event_counter *at) {
    atomic_store(&at->value, 0);
    at->wanted = 0;
    atomic_store(&at->n_asleep, 0);
    pthread_mutex_init(&at->lock, NULL);
    pthread_cond_init(&at->changed, NULL);
}

/* Sleeps until a counter is at least `value`. */
static void sleep_until(event_counter *at, uint64_t value) {
    pthread_mutex_lock(&at->lock);
    atomic_fetch_add(&at->n_asleep, 1);
    for (uint64_t now; (now = atomic_load(&at->value)) < value;) {
        if (at->wanted <= now) pthread_cond_broadcast(&at->changed);  /* before `wanted` changes */
        if (at->wanted <= now || at->wanted > value) at->wanted = value;
        pthread_cond_wait(&at->changed, &at->lock);
    }
    atomic_fetch_sub(&at->n_asleep, 1);
    pthread_mutex_unlock(&at->lock);
}

/* Polls, then sleeps, until a counter is at least `value`. */
static void wait_until(event_counter *at, uint64_t value) {
    for (uint32_t i = 0; i < SPIN_POLLS; i++) {
        if (atomic_load_explicit(&at->value, memory_order_acquire) >= value) return;
        relax();
    }
    sleep_until(at, value);
}

/* Adds to a counter and wakes sleeping threads if needed. A thread increments n_asleep before its last poll,
 * so a writer that reads 0 after its addition has no thread to wake. No sleeping thread waits for less than
 * `wanted`. When the counter reaches `wanted`, the writer or the next thread that goes to sleep wakes all
 * sleeping threads; a thread whose value is not reached sets `wanted` again. */
static void add(event_counter *at, uint64_t more) {
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

/* Counts the calling thread at the current barrier. Returns true if it arrives last. */
static int is_last(cam_pool *pool, uint32_t n_threads) {
    return atomic_fetch_add_explicit(&pool->n_arrived, 1, memory_order_acq_rel) + 1 == n_threads;
}

/* Releases all threads from the barrier. */
static void release_barrier(cam_pool *pool) {
    atomic_store_explicit(&pool->n_arrived, 0, memory_order_relaxed);
    clear_taken(pool);
    add(&pool->phase, 1);
}

/* Barrier: returns when all threads of the op have arrived. */
void cam_meet(const cam_run *run, uint32_t thread) {
    (void)thread;
    cam_pool *pool = run->pool;
    if (run->n_threads == 1) return;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (is_last(pool, run->n_threads)) release_barrier(pool);
    else wait_until(&pool->phase, phase + 1);
}

static int is_with_host(const cam_pool *pool) {
    return atomic_load_explicit(&pool->n_participants, memory_order_relaxed) > pool->n_workers;
}

/* Adds the host to this run before op `next`, if the host waits for this run or a later one. */
static void admit_host(cam_pool *pool, const cam_run *run, uint64_t next) {
    if (is_with_host(pool) || atomic_load(&pool->awaited) < run->number) return;
    pool->host = *run, pool->host_op = next;
    atomic_store(&pool->n_participants, pool->n_workers + 1);
    atomic_store(&pool->host_phase, atomic_load(&pool->phase.value) + 1);
}

/* Barrier between two ops: the only point of a run at which the host may join. */
void cam_meet_between(cam_run *run, uint64_t next) {
    cam_pool *pool = run->pool;
    if (pool->n_threads == 1) return;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (is_last(pool, run->n_threads)) admit_host(pool, run, next), release_barrier(pool);
    else wait_until(&pool->phase, phase + 1);
    run->n_threads = atomic_load_explicit(&pool->n_participants, memory_order_relaxed);
}

/* Ends the run when all threads have arrived; the host leaves unless it waits for a later run. */
static void finish(const cam_run *run) {
    cam_pool *pool = run->pool;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (!is_last(pool, run->n_threads)) {
        wait_until(&pool->phase, phase + 1);
        return;
    }
    if (is_with_host(pool) && atomic_load(&pool->awaited) <= run->number)
        atomic_store(&pool->n_participants, pool->n_workers);
    add(&pool->ended, 1);
    release_barrier(pool);
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

static cam_run run_of(const cam_pool *pool, uint64_t number) {
    return pool->queue[number % CAM_MOST_RUNS].run;
}

/* Computes a thread's part of a run, from op `first` on. */
static void execute(cam_run run, uint32_t thread, uint64_t first) {
    cam_pool *pool = run.pool;
    run.n_threads = atomic_load_explicit(&pool->n_participants, memory_order_relaxed);
    pool->queue[run.number % CAM_MOST_RUNS].variant->execute(&run, thread, first);
    finish(&run);
}

static void *work(void *argument) {
    worker me = *(worker *)argument;
    free(argument);
    pin(me.pool, me.thread);
    set_float_mode(FLOAT_MODE);
    for (uint64_t number = 1;; number++) {
        wait_until(&me.pool->ordinal, 2 * number - 1);
        if (atomic_load(&me.pool->ordinal.value) == 2 * number - 1) return NULL;
        execute(run_of(me.pool, number), me.thread, 0);
    }
}

/* Ends and joins the first n worker threads. */
static void end_threads(cam_pool *pool, uint32_t n) {
    add(&pool->ordinal, 1);
    for (uint32_t i = 0; i < n; i++) pthread_join(pool->threads[i], NULL);
}

static int start_thread(cam_pool *pool, uint32_t thread) {
    worker *argument = malloc(sizeof *argument);
    if (!argument) return 0;
    *argument = (worker){pool, thread};
    if (pthread_create(&pool->threads[thread], NULL, work, argument) == 0) return 1;
    free(argument);
    return 0;
}

/* Starts all worker threads. If a thread cannot be started, ends the others and returns 0. */
static int start(cam_pool *pool) {
    init_counter(&pool->ordinal);
    init_counter(&pool->ended);
    init_counter(&pool->phase);
    atomic_store(&pool->n_arrived, 0);
    atomic_store(&pool->n_participants, pool->n_workers);
    atomic_store(&pool->awaited, 0);
    atomic_store(&pool->is_helped, 0);
    atomic_store(&pool->n_waiting, 0);
    atomic_store(&pool->host_phase, 0);
    clear_taken(pool);
    for (uint32_t i = 0; i < pool->n_workers; i++)
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

cam_pool *cam_pool_new(uint32_t n_threads, const uint32_t *cpus, int with_host) {
    cam_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->n_threads = n_threads;
    pool->n_workers = with_host && n_threads > 1 ? n_threads - 1 : n_threads;
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
    const uint64_t number = atomic_load(&pool->ordinal.value) / 2 + 1;
    queued_run *next = &pool->queue[number % CAM_MOST_RUNS];
    *next = (queued_run){variant, *run};
    next->run.pool = pool;
    next->run.taken = pool->taken;
    next->run.number = number;
    add(&pool->ordinal, 2);
    return 1;
}

/* True if the host has joined and the barrier at which it joined is released. Before the release, the host
 * would be counted among the threads of that barrier. */
static int has_joined(const cam_pool *pool, uint64_t phase) {
    const uint64_t joined = atomic_load(&pool->host_phase);
    return joined && phase >= joined;
}

/* Computes the host's part of the joined run and of the runs after it, up to the awaited one. */
static void compute_until(cam_pool *pool, uint64_t awaited) {
    const uint64_t before = set_float_mode(FLOAT_MODE), first = pool->host.number;
    atomic_store(&pool->host_phase, 0);
    execute(pool->host, pool->n_workers, pool->host_op);
    for (uint64_t number = first + 1; number <= awaited; number++)
        execute(run_of(pool, number), pool->n_workers, 0);
    set_float_mode(before);
}

/* Waits for the end of a run; the host computes meanwhile if it joins before that end. */
static void help_until(cam_pool *pool, uint64_t awaited) {
    uint64_t phase;
    atomic_store(&pool->awaited, awaited);
    while (phase = atomic_load(&pool->phase.value), !has_joined(pool, phase)) {
        if (atomic_load(&pool->ended.value) >= awaited) break;
        wait_until(&pool->phase, phase + 1);
    }
    if (has_joined(pool, phase)) compute_until(pool, awaited);
    atomic_store(&pool->awaited, 0);
}

/* Waits for the end of a run. A host that does not compute sleeps at once: polling would take a processor
 * from a thread. */
static void wait_for(cam_pool *pool, uint64_t awaited) {
    if (pool->n_workers == pool->n_threads || atomic_exchange(&pool->is_helped, 1)) {
        sleep_until(&pool->ended, awaited);
        return;
    }
    help_until(pool, awaited);
    atomic_store(&pool->is_helped, 0);
}

void cam_pool_wait(cam_pool *pool, uint32_t max_unfinished) {
    if (pool->owner != getpid()) return;  /* unfinished runs stay in the parent process */
    const uint64_t n_submitted = atomic_load(&pool->ordinal.value) / 2;
    if (n_submitted <= max_unfinished) return;
    atomic_fetch_add(&pool->n_waiting, 1);
    wait_for(pool, n_submitted - max_unfinished);
    atomic_fetch_sub(&pool->n_waiting, 1);
}

/* Frees the pool after the last host thread has left cam_pool_wait. */
void cam_pool_free(cam_pool *pool) {
    if (pool->owner == getpid()) {
        end_threads(pool, pool->n_workers);
        while (atomic_load(&pool->n_waiting)) sched_yield();
    }
    release(pool);
}

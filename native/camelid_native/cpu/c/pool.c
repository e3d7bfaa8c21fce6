/* A pool of threads. Runs may wait behind the one under way, and begin when that has ended, without their
 * host. Threads spin a while for the next run, as one step follows another within microseconds, then sleep
 * until it comes. In a child of fork() they are started anew.
 *
 * Where there is no processor left for the host it is one of the threads while it waits: it comes in between
 * two ops and goes when the run that it waits for has ended. The others go on without it, so that what it
 * does then holds none of them up. */
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
    uint32_t n_threads;       /* with the host, if it computes */
    uint32_t n_own, *cpus, n_cpus;
    pthread_t *threads;
    pid_t owner;              /* the process that the threads live in */
    order orders[CAM_MOST_RUNS];  /* run n is orders[n % CAM_MOST_RUNS] */
    word ordinal;             /* twice the runs that were begun; an odd number ends the threads after them */
    word ended;               /* runs */
    word phase;               /* of cam_meet */
    atomic_uint n_met;
    char between[CACHE_LINE];
    atomic_uint n_here;       /* threads of the op at hand; changes while all of them meet */
    atomic_ullong awaited;    /* the run whose end the host waits for; 0: it is away */
    atomic_uint is_helped;    /* a thread of the host is in help_until: one is let in at a time */
    atomic_uint n_waiting;    /* threads of the host in cam_pool_wait */
    atomic_ullong host_phase; /* with which the host has come in; 0: it has not */
    cam_run host;             /* with what it came, before op `host_op` */
    uint64_t host_op;
    cam_taken *taken;         /* one a thread; see cam_take */
};

typedef struct { cam_pool *pool; uint32_t thread; } worker;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* To nearest, and with subnormals: some libraries have a thread flush them, and what a row gives must not
 * depend on who computes it. Returns the mode before. */
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

/* Whether all others of the op are here already. */
static int is_last(cam_pool *pool, uint32_t n_threads) {
    return atomic_fetch_add_explicit(&pool->n_met, 1, memory_order_acq_rel) + 1 == n_threads;
}

/* Lets those go on who have met. */
static void part(cam_pool *pool) {
    atomic_store_explicit(&pool->n_met, 0, memory_order_relaxed);
    clear_taken(pool);
    add(&pool->phase, 1);
}

void cam_meet(const cam_run *run, uint32_t thread) {
    (void)thread;
    cam_pool *pool = run->pool;
    if (run->n_threads == 1) return;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (is_last(pool, run->n_threads)) part(pool);
    else wait_until(&pool->phase, phase + 1);
}

static int is_with_host(const cam_pool *pool) {
    return atomic_load_explicit(&pool->n_here, memory_order_relaxed) > pool->n_own;
}

/* The host comes in with this run before op `next`, if it waits for the end of this or a later one. */
static void let_host_in(cam_pool *pool, const cam_run *run, uint64_t next) {
    if (is_with_host(pool) || atomic_load(&pool->awaited) < run->number) return;
    pool->host = *run, pool->host_op = next;
    atomic_store(&pool->n_here, pool->n_own + 1);
    atomic_store(&pool->host_phase, atomic_load(&pool->phase.value) + 1);
}

void cam_meet_between(cam_run *run, uint64_t next) {
    cam_pool *pool = run->pool;
    if (pool->n_threads == 1) return;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (is_last(pool, run->n_threads)) let_host_in(pool, run, next), part(pool);
    else wait_until(&pool->phase, phase + 1);
    run->n_threads = atomic_load_explicit(&pool->n_here, memory_order_relaxed);
}

/* The run has ended when all have met; the host goes then, if it waits for no later one. */
static void finish(const cam_run *run) {
    cam_pool *pool = run->pool;
    uint64_t phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (!is_last(pool, run->n_threads)) {
        wait_until(&pool->phase, phase + 1);
        return;
    }
    if (is_with_host(pool) && atomic_load(&pool->awaited) <= run->number)
        atomic_store(&pool->n_here, pool->n_own);
    add(&pool->ended, 1);
    part(pool);
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
    return pool->orders[number % CAM_MOST_RUNS].run;
}

/* A thread's part of a run, from op `first` on. */
static void execute(cam_run run, uint32_t thread, uint64_t first) {
    cam_pool *pool = run.pool;
    run.n_threads = atomic_load_explicit(&pool->n_here, memory_order_relaxed);
    pool->orders[run.number % CAM_MOST_RUNS].variant->execute(&run, thread, first);
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

/* Ends the first n threads. */
static void end_threads(cam_pool *pool, uint32_t n) {
    add(&pool->ordinal, 1);
    for (uint32_t i = 0; i < n; i++) pthread_join(pool->threads[i], NULL);
}

static int start_thread(cam_pool *pool, uint32_t thread) {
    worker *each = malloc(sizeof *each);
    if (!each) return 0;
    *each = (worker){pool, thread};
    if (pthread_create(&pool->threads[thread], NULL, work, each) == 0) return 1;
    free(each);
    return 0;
}

/* Starts all threads; if one cannot be, ends the others and returns 0. */
static int start(cam_pool *pool) {
    start_word(&pool->ordinal);
    start_word(&pool->ended);
    start_word(&pool->phase);
    atomic_store(&pool->n_met, 0);
    atomic_store(&pool->n_here, pool->n_own);
    atomic_store(&pool->awaited, 0);
    atomic_store(&pool->is_helped, 0);
    atomic_store(&pool->n_waiting, 0);
    atomic_store(&pool->host_phase, 0);
    clear_taken(pool);
    for (uint32_t i = 0; i < pool->n_own; i++)
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
    pool->n_own = with_host && n_threads > 1 ? n_threads - 1 : n_threads;
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
    order *next = &pool->orders[number % CAM_MOST_RUNS];
    *next = (order){variant, *run};
    next->run.pool = pool;
    next->run.taken = pool->taken;
    next->run.number = number;
    add(&pool->ordinal, 2);
    return 1;
}

/* Whether the host has come in, and those who met there have parted: before, it would count among them. */
static int has_come_in(const cam_pool *pool, uint64_t phase) {
    const uint64_t came = atomic_load(&pool->host_phase);
    return came && phase >= came;
}

/* The rest of a run, and those after it up to the one awaited. */
static void compute_until(cam_pool *pool, uint64_t awaited) {
    const uint64_t before = set_float_mode(FLOAT_MODE), first = pool->host.number;
    atomic_store(&pool->host_phase, 0);
    execute(pool->host, pool->n_own, pool->host_op);
    for (uint64_t number = first + 1; number <= awaited; number++)
        execute(run_of(pool, number), pool->n_own, 0);
    set_float_mode(before);
}

/* The host computes until a run has ended, if it can come in before. */
static void help_until(cam_pool *pool, uint64_t awaited) {
    uint64_t phase;
    atomic_store(&pool->awaited, awaited);
    while (phase = atomic_load(&pool->phase.value), !has_come_in(pool, phase)) {
        if (atomic_load(&pool->ended.value) >= awaited) break;
        wait_until(&pool->phase, phase + 1);
    }
    if (has_come_in(pool, phase)) compute_until(pool, awaited);
    atomic_store(&pool->awaited, 0);
}

/* A host that does not compute sleeps at once: its looking would take a processor from a thread. */
static void wait_for(cam_pool *pool, uint64_t awaited) {
    if (pool->n_own == pool->n_threads || atomic_exchange(&pool->is_helped, 1)) {
        sleep_until(&pool->ended, awaited);
        return;
    }
    help_until(pool, awaited);
    atomic_store(&pool->is_helped, 0);
}

void cam_pool_wait(cam_pool *pool, uint32_t most) {
    if (pool->owner != getpid()) return;  /* what was under way stayed in the parent */
    const uint64_t n_begun = atomic_load(&pool->ordinal.value) / 2;
    if (n_begun <= most) return;
    atomic_fetch_add(&pool->n_waiting, 1);
    wait_for(pool, n_begun - most);
    atomic_fetch_sub(&pool->n_waiting, 1);
}

/* Some other thread may just have seen that its run has ended. */
void cam_pool_free(cam_pool *pool) {
    if (pool->owner == getpid()) {
        end_threads(pool, pool->n_own);
        while (atomic_load(&pool->n_waiting)) sched_yield();
    }
    release(pool);
}

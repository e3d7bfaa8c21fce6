/* The host joins between ops and leaves at the ends of runs, beside one thread and beside three. Each item is
 * computed once, after all items of the previous op, in the pool's float mode (the host's, too). */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* Delays some of the atomic operations that other threads observe. */
static void hold_up(void) {
    static _Thread_local uint32_t n;
    if (++n % 5 == 0) usleep(50);
}
#undef atomic_store
#undef atomic_fetch_add
#define atomic_store(at, value) (atomic_store_explicit(at, value, memory_order_seq_cst), hold_up())
#define atomic_fetch_add(at, more) (hold_up(), atomic_fetch_add_explicit(at, more, memory_order_seq_cst))
#include "pool.c"

/* Bits of the float mode that flush subnormals. */
#if defined(__x86_64__)
enum { FLUSHING = 0x8040 };
#elif defined(__aarch64__)
enum { FLUSHING = 1 << 24 };
#else
enum { FLUSHING = 0 };
#endif
enum { OPS = 5, THINGS = 24, RUNS = 300 };

static struct {
    uint8_t done[CAM_MOST_RUNS][OPS][THINGS];
    atomic_uint by_host, without_host, wrong, is_over;
} seen;
static _Thread_local uint32_t is_host;

static void expect(int holds) {
    if (!holds) atomic_fetch_add(&seen.wrong, 1);
}

static void do_thing(uint8_t (*ops)[THINGS], uint64_t op, uint32_t i) {
    expect(ops[op][i]++ == 0);
    for (uint32_t k = 0; op && k < THINGS; k++) expect(ops[op - 1][k] == 1);
}

static void some_ops(cam_run *run, uint32_t thread, uint64_t first) {
    uint8_t (*ops)[THINGS] = seen.done[run->number % CAM_MOST_RUNS];
    for (uint64_t op = first; op < OPS; op++) {
        if (op > first) cam_meet_between(run, op);
        const uint32_t n = run->n_threads;
        const cam_range mine = share(THINGS, run, thread);
        const uint64_t mode = set_float_mode(FLOAT_MODE);
        expect(thread < n && mode == FLOAT_MODE && is_host == (thread == run->pool->n_workers));
        for (uint32_t i = mine.start; i < mine.end; i++) do_thing(ops, op, i);
        atomic_fetch_add(is_host ? &seen.by_host : &seen.without_host, is_host || n == run->pool->n_workers);
    }
}

/* Checks and clears the record of an ended run. */
static void check_run(uint64_t number) {
    uint8_t (*ops)[THINGS] = seen.done[number % CAM_MOST_RUNS];
    for (uint32_t i = 0; i < OPS * THINGS; i++) expect(ops[i / THINGS][i % THINGS] == 1);
    memset(ops, 0, OPS * THINGS);
}

static void wait_and_check(cam_pool *pool, uint64_t *ended, uint64_t begun, uint32_t most) {
    const uint64_t before = set_float_mode(FLOAT_MODE | FLUSHING);
    cam_pool_wait(pool, most);
    expect(set_float_mode(before) == (FLOAT_MODE | FLUSHING));
    while (*ended + most < begun) check_run(++*ended);
}

static void *wait_too(void *pool) {
    is_host = 1;
    for (; !seen.is_over; usleep(1000)) cam_pool_wait(pool, 0);
    return NULL;
}

/* Queues several runs and waits for some, while another thread waits, too. */
static void host(uint32_t n_threads) {
    const cam_variant variant = {.execute = some_ops};
    const cam_run run = {0};
    const uint64_t before = set_float_mode(FLOAT_MODE | FLUSHING);  /* threads inherit their creator's */
    cam_pool *pool = cam_pool_new(n_threads, NULL, 1);
    pthread_t other;
    uint64_t ended = 0;
    set_float_mode(before);
    seen.is_over = 0;
    expect(pthread_create(&other, NULL, wait_too, pool) == 0);
    for (uint64_t begun = 0; begun < RUNS;) {
        expect(cam_pool_submit(pool, &variant, &run)), begun++;
        if (begun - ended == CAM_MOST_RUNS || begun % 3 == 0)
            wait_and_check(pool, &ended, begun, (uint32_t)(begun * 7 % CAM_MOST_RUNS));
    }
    wait_and_check(pool, &ended, RUNS, 0);
    seen.is_over = 1;
    pthread_join(other, NULL);
    cam_pool_free(pool);
}

int main(void) {
    is_host = 1;
    host(2), host(4);
    printf("%u ops with the host, %u without, %u wrong\n", seen.by_host, seen.without_host, seen.wrong);
    return seen.by_host && seen.without_host && !seen.wrong ? 0 : 1;
}

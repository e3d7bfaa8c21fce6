/* The pool with a delay between the increment of a counter and the check for sleeping threads: meanwhile one
 * thread sleeps, and another thread reaches the next barrier and sleeps there. Exits with 0 after all runs
 * have ended. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void hold_up(const char *caller) {
    if (strcmp(caller, "add") == 0) usleep(3000);
}
#define pthread_mutex_lock(lock) (hold_up(__func__), (pthread_mutex_lock)(lock))
#include "pool.c"

enum { THREADS = 3, MEETINGS = 250 };

/* The first of three threads sleeps; the others arrive so close together that one need not sleep. */
static void meet_often(cam_run *run, uint32_t thread, uint64_t first) {
    (void)first;
    for (uint32_t i = 0; i < MEETINGS; i++) {
        if ((thread + i) % THREADS) usleep(1000);
        cam_meet(run, thread);
    }
}

int main(void) {
    const cam_variant variant = {.execute = meet_often};
    const cam_run run = {0};
    cam_pool *pool = cam_pool_new(THREADS, NULL, 0);
    if (!pool || !cam_pool_submit(pool, &variant, &run) || !cam_pool_submit(pool, &variant, &run)) return 1;
    cam_pool_wait(pool, 0);
    cam_pool_free(pool);
    return 0;
}

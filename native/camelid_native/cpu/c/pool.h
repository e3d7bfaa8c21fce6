/* Pool of threads that run programs, one after the other. */
#pragma once
#include "variant.h"

/* Starts a pool. Each thread is pinned to its entry of `cpus`; NULL pins no thread. `with_host` starts one
 * thread fewer, as the host computes in cam_pool_wait. Returns NULL if a thread cannot be started. */
cam_pool *cam_pool_new(uint32_t n_threads, const uint32_t *cpus, int with_host);
/* Queues a run; at most CAM_MOST_RUNS may be unfinished. Returns 0 if the threads cannot be restarted in a
 * child of fork(): the run is not queued, and a later call tries again. */
int cam_pool_submit(cam_pool *pool, const cam_variant *variant, const cam_run *run);
/* Waits until at most `max_unfinished` runs are unfinished. */
void cam_pool_wait(cam_pool *pool, uint32_t max_unfinished);
void cam_pool_free(cam_pool *pool);

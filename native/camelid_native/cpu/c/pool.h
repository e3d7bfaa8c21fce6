/* The threads that run programs, one after the other. */
#pragma once
#include "variant.h"

/* `cpus` are the processors that threads are pinned to, one each; NULL pins none. With the host one thread
 * fewer is started, as it computes while it waits. NULL if not all of the threads can be started. */
cam_pool *cam_pool_new(uint32_t n_threads, const uint32_t *cpus, int with_host);
/* Begins a run, or has it wait behind those under way, at most CAM_MOST_RUNS with it. 0 if in a child of
 * fork() the threads cannot be started: then there is no run, and a later call tries again. */
int cam_pool_submit(cam_pool *pool, const cam_variant *variant, const cam_run *run);
/* Waits until at most so many runs have not ended, the last ones. */
void cam_pool_wait(cam_pool *pool, uint32_t most);
void cam_pool_free(cam_pool *pool);

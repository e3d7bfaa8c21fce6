/* outputs: the products of a block with its rows of x, handed to a task lane by lane. A task is a struct with
 *
 *   R                    rows of the matrix of a lane
 *   weight, in, norm     the matrix, the input, its deferred norm
 *   find_rows(rows)      the lane's rows, which are rows of the matrix
 *   finish(own, first)   takes own[r], the lane's sums for row first + CLASS of the input; all threads call it
 *
 * A lane has the row THREAD / CLASSES of the BLOCK_ROWS of its block. A block has TOKENS rows of x, at most CLASSES, and
 * FEW_THREADS threads; or GEMM rows, rounded, by integer matrix instructions (gemm.h), with the same bits; or MANY, of
 * bf16 or f16, by float ones (many.h), whose bits are their own, so that all blocks of a product with these have MANY. */
#pragma once
#ifndef THREADS
#define THREADS FEW_THREADS
#endif
#define BLOCK_ROWS (THREADS / 8)
#include "deferred.h"
#include "product.h"
#if defined(GEMM) || defined(MANY)
#include "finish.h"
#include "mma.h"
#endif
#if defined(GEMM)
#include "gemm.h"
#elif defined(MANY)
#include "many.h"
#else
#define BLOCK_TOKENS TOKENS
template <int N, class Task> DEVICE void few_outputs(const Task &task) {
    int rows[Task::R];
    float sums[Task::R][N], own[Task::R] = {};
    task.find_rows(rows);
    multiply<N, Task::R>(task.weight, rows, task.in, sums);
    scale_sums<THREADS>(task.norm, task.in.n, sums);
    for (int r = 0; r < Task::R; r++)
        UNROLL
        for (int t = 0; t < N; t++) own[r] = CLASS == t ? sums[r][t] : own[r];
    task.finish(own, 0);
}

/* few_outputs for the least power of two N <= TOKENS that is at least the number of rows. */
template <class Task, int N = 1> DEVICE void outputs(const Task &task) {
    if constexpr (N < TOKENS) {
        if (task.in.n > N) return outputs<Task, 2 * N>(task);
    }
    few_outputs<N>(task);
}
#endif

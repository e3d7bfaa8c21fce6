/* finish: the sums of a block with many rows of x, from shared memory to a task (outputs.h), with the scales of a
 * deferred norm. */
#pragma once
#include "deferred.h"
#include "product.h"

DEVICE int at_most(int last, int i) { return i < last ? i : last; }

/* scales[t] = that of row t of the input. All threads call it; both halves of a wave of 64 have the same turns. */
template <class Task> DEVICE void put_scales(const Task &task, float *scales) {
    const Norm &norm = task.norm;
    SYNC();  /* lanes may still read the scales of the call before */
    for (int first = 0; first < task.in.n; first += THREADS / GROUP_LANES) {
        const int own = first + THREAD / GROUP_LANES, row = norm.row + at_most(task.in.n - 1, own);
        const float scale = norm.scales ? norm.scales[row] : scale_by_group(norm, row);
        if (LANE == 0 && own < task.in.n) scales[own] = scale;
    }
}

/* Finishes N groups of CLASSES rows of x: kept[(r * N + g) * THREADS] is the lane's sum of its row r with row
 * CLASSES * g + CLASS. */
template <int N, class Task> DEVICE void finish_groups(const Task &task, const float *kept, const float *scales) {
    for (int g = 0; g < N && CLASSES * g < task.in.n; g++) {
        float own[Task::R];
        const float scale = scales[at_most(task.in.n - 1, CLASSES * g + CLASS)];
        UNROLL
        for (int r = 0; r < Task::R; r++) own[r] = kept[(r * N + g) * THREADS] * scale;
        task.finish(own, CLASSES * g);
    }
}

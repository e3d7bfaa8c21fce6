/* wkv: scans of RWKV over the rows of a sequence. A block has GROUPS rows of a head's state matrix, a group of 32 lanes
 * each, and stages the vectors of a few rows of the step for all of them. A scan is a struct with
 *
 *   Staged                    vectors of staged rows; `v` has a float for each row of the block's part of the matrix
 *   width                     columns of a head, and rows of its matrix
 *   value_column()            the first column of the head in v
 *   sum_of(t)                 a sum over the head's columns in row t of the step; all lanes of a wave call it
 *   stage_row(s, t, to, sum)  stages row t as row `to`, by one group
 *   advance(s, part, r, v)    takes staged row r; returns the output of the group's row of the matrix */
#pragma once
#include "block.h"
#include "math.h"
#include "slots.h"

#define THREADS 256
#define NARROW 64  /* columns of a head of published models; wider heads have fewer rows staged */
#define MAX_WKV_WIDTH 256  /* as in plan/op_rows_recurrent.py */

enum { STAGED_ROWS = GROUPS, STAGED_FLOATS = STAGED_ROWS * NARROW };

/* Stages n rows of the step, from `first` on. Groups beyond take part in the sum of the last row. */
template <class Scan> DEVICE void stage(typename Scan::Staged *s, const Scan &scan, int first, int n) {
    const int own = THREAD / GROUP_LANES, t = first + (own < n ? own : n - 1);
    const float sum = scan.sum_of(t);
    SYNC();  /* the rows before are read */
    if (own < n) scan.stage_row(s, t, own, sum);
    if (THREAD < n * GROUPS) {
        const int p = BLOCK_X * GROUPS + THREAD % GROUPS;
        s->v[THREAD] = p < scan.width ? row_of(scan.v, first + THREAD / GROUPS)[scan.value_column() + p] : 0.0f;
    }
    SYNC();
}

/* The rows of a sequence, for the block's rows of a head's state matrix. Groups beyond its last row take part with
 * zeros. */
template <int PER_LANE, class Scan>
DEVICE void scan_rows(Step step, Slots state, const Scan &scan, typename Scan::Staged *s) {
    const int p = BLOCK_X * GROUPS + THREAD / GROUP_LANES, row = BLOCK_Y * scan.width + p;
    const int most = STAGED_FLOATS / (PER_LANE * GROUP_LANES), used = p < scan.width ? scan.width : 0;
    const Span span = span_of(step, (u32)BLOCK_Z);
    const Group group = group_at(step, (u32)BLOCK_Z, state.group);
    StatePart<PER_LANE> part;
    load_part(part, state, group, row, used, scan.width);
    for (int done = 0; done < span.rows; done += most) {
        const int first = span.first + done, n = span.rows - done < most ? span.rows - done : most;
        stage(s, scan, first, n);
        for (int r = 0; r < n; r++) {
            const float y = scan.advance(s, part, r, s->v[r * GROUPS + THREAD / GROUP_LANES]);
            if (LANE == 0 && used) row_of(scan.y, first + r)[row] = y;
        }
    }
    store_part(part, state, group, row, used, scan.width);
}

/* A scan whose blocks are parts of a head's state matrix, heads and sequences. */
template <class Scan> DEVICE void scan_heads(Step step, Slots state, const Scan &scan, typename Scan::Staged *s) {
    if (BLOCK_Z >= count(step, SEQUENCES)) return;
    if (scan.width <= NARROW) scan_rows<NARROW / GROUP_LANES>(step, state, scan, s);
    else scan_rows<MAX_WKV_WIDTH / GROUP_LANES>(step, state, scan, s);
}

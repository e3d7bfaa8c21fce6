/* qkv: the task of a block that makes queries, keys and values, rotates queries and keys, and writes keys and values to
 * their page (outputs.h). A group of 32 lanes has four rows of the matrix with both floats of two pairs. */
#pragma once
#define FEW_THREADS 128
#include "outputs.h"
#include "turn.h"
#define NEXT_ROW CLASSES  /* distance of lanes with neighbouring rows of a quad */

/* Columns of y, in all `rows`: rotated heads, of which the last k_cols are keys, then v_cols of values. A pair's second
 * float is `next` columns after its first. */
struct Columns { int rows, k_cols, v_cols, head_dim, offset, next; };
struct Place { int row, pair; bool is_second; };  /* a column; its pair in the head, or -1 */

struct Qkv {
    enum { R = 1 };
    Step step;
    Matrix weight;  /* its row 0 is column `base` of y */
    Input in;
    Norm norm;
    Columns columns;
    Angles angles;
    Pool state;
    View y;
    const float *bias;
    int token, base;

    DEVICE int quad() const { return (BLOCK_X * BLOCK_ROWS + THREAD / CLASSES) / QUAD; }
    DEVICE bool is_row() const { return quad() < columns.rows / QUAD; }
    DEVICE Place place() const;
    DEVICE void find_rows(int (&own)[R]) const { own[0] = place().row - base; }
    DEVICE void finish(const float (&own)[R], int first) const;
};

/* The lane's column. Pairs that are half a head apart are in one quad, with two neighbouring pairs. */
DEVICE Place Qkv::place() const {
    const int last = columns.rows / QUAD - 1, own = LANE / CLASSES, first = QUAD * (is_row() ? quad() : last);
    const int inside = first % columns.head_dim - columns.offset;
    const bool is_turned = first < columns.rows - columns.v_cols && inside >= 0 && inside < 2 * angles.pairs;
    if (!is_turned) return {first + own, -1, false};
    if (columns.next == 1) return {first + own, (inside + own) / 2, own % 2 == 1};
    const int pair = inside / 2 + own % 2;
    return {first - inside + pair + (own / 2 ? columns.next : 0), pair, own / 2 == 1};
}

/* The lane's float after the rotation with its partner's. */
DEVICE float turned_at(const Qkv &task, Place place, int row, float v, float other) {
    if (place.pair < 0) return v;
    const Pair pair = place.is_second ? Pair{other, v} : Pair{v, other};
    const Pair to = turned(pair, angle_of(task.angles, position_of(task.step, row, 0), place.pair));
    return place.is_second ? to.y : to.x;
}

/* Writes column c of y to its page if it is a key or a value. */
DEVICE void put(const Qkv &task, int row, int c, float v) {
    const int values_at = task.columns.rows - task.columns.v_cols, keys_at = values_at - task.columns.k_cols;
    if (c < keys_at) return;
    const bool is_value = c >= values_at;
    const Row own = row_at(task.step, row);
    const u32 place = pool_row(task.state, group_at(task.step, own.sequence, task.state.group), own.state_row);
    const int width = is_value ? task.state.v_width : task.state.width;
    u8 *to = (is_value ? task.state.values : task.state.keys) + place * KvRows::bytes(width);
    KvRows::store(to, c - (is_value ? values_at : keys_at), v, true);
}

DEVICE void Qkv::finish(const float (&own)[R], int first) const {
    const Place at = place();
    const float v = bias ? own[0] + bias[at.row - base] : own[0];
    const float other = shuffle_xor(v, columns.next == 1 ? NEXT_ROW : 2 * NEXT_ROW);
    if (first + CLASS >= in.n || !is_row()) return;
    const int row = token + first + CLASS;
    const float to = turned_at(*this, at, row, v, other);
    row_of(y, row)[at.row] = to;
    put(*this, row, at.row, to);
}

/* qkv: y = weight @ x + bias for queries, keys and values, also after a deferred norm; then queries and keys are
 * rotated, and keys and values written to their page. A block has 16 rows of the matrix and TOKENS rows of x; a group
 * of 32 lanes has four rows with both floats of two pairs. */
#include "deferred.h"
#include "product.h"
#include "turn.h"

#define THREADS 128
#define BLOCK_ROWS (THREADS / CLASSES)
#define NEXT_ROW CLASSES  /* distance of lanes with neighbouring rows of a quad */

/* Columns of y: rotated heads, of which the last k_cols are keys, then v_cols of values. A pair's second float is
 * `next` columns after its first. */
struct Columns { int rows, k_cols, v_cols, head_dim, offset, next; };
struct Qkv {
    Step step;
    Matrix weight;
    Input in;
    Norm norm;
    Columns columns;
    Angles angles;
    Pool state;
    View y;
    const float *bias;
    int token;
};
struct Place { int row, pair; bool is_second; };  /* a column; its pair in the head, or -1 */

/* The lane's column of a quad. Pairs that are half a head apart are in one quad, with two neighbouring pairs. */
DEVICE Place place_of(const Qkv &task, int quad) {
    const Columns &c = task.columns;
    const int own = LANE / CLASSES, first = QUAD * quad, inside = first % c.head_dim - c.offset;
    const bool is_turned = first < c.rows - c.v_cols && inside >= 0 && inside < 2 * task.angles.pairs;
    if (!is_turned) return {first + own, -1, false};
    if (c.next == 1) return {first + own, (inside + own) / 2, own % 2 == 1};
    const int pair = inside / 2 + own % 2;
    return {first - inside + pair + (own / 2 ? c.next : 0), pair, own / 2 == 1};
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
    const Row held = row_at(task.step, row);
    const u32 place = pool_row(task.state, group_at(task.step, held.sequence, task.state.group), held.state_row);
    const int width = is_value ? task.state.v_width : task.state.width;
    u8 *to = (is_value ? task.state.values : task.state.keys) + place * KvRows::bytes(width);
    KvRows::store(to, c - (is_value ? values_at : keys_at), v, true);
}

template <int N> DEVICE void tile(const Qkv &task, Number<N>) {
    const int quad = (BLOCK_X * BLOCK_ROWS + THREAD / CLASSES) / QUAD, last = task.columns.rows / QUAD - 1;
    const Place place = place_of(task, quad < last ? quad : last);
    const int rows[1] = {place.row}, row = task.token + CLASS;
    float sums[1][N], v = 0.0f;
    multiply<N, 1>(task.weight, rows, task.in, sums);
    scale_sums<THREADS>(task.norm, task.in.n, sums);
    UNROLL
    for (int t = 0; t < N; t++) v = CLASS == t ? sums[0][t] : v;
    if (task.bias) v = v + task.bias[place.row];
    const float other = shuffle_xor(v, task.columns.next == 1 ? NEXT_ROW : 2 * NEXT_ROW);
    if (CLASS >= task.in.n || quad > last) return;
    const float to = turned_at(task, place, row, v, other);
    row_of(task.y, row)[place.row] = to;
    put(task, row, place.row, to);
}

KERNEL(qkv, THREADS)(Step step, View y, View x, Matrix weight, const float *bias, const u8 *codes, const uint4 *factors,
                     const float *fine, const float *coarse, Pool state, int norm_cols, float eps, int k_cols,
                     int v_cols, int head_dim, int offset, int next, int pairs, int fine_rows, int coarse_rows) {
    const int token = BLOCK_Y * TOKENS, left = count(step, y.rows_word) - token;
    if (left <= 0) return;
    const int n = left < TOKENS ? left : TOKENS;
    const Parts all = {x, codes, factors, 1, 0};
    const Angles angles = {fine, coarse, fine_rows, coarse_rows, pairs};
    const Columns columns = {weight.rows, k_cols, v_cols, head_dim, offset, next};
    const Norm norm = {x, token, norm_cols, eps};
    const Input in = input_of(all, weight.cols, 0, token, n);
    const Qkv task = {step, weight, in, norm, columns, angles, state, y, bias, token};
    for_rows<1>(task, n);
}

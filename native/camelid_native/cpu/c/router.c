/* router: experts of each row, and their weights. */
#include "parts.h"
#include "run.h"
#include "vmath.h"

enum { ROUTER_IDS, ROUTER_PROBS, ROUTER_LOGITS };
enum { ROUTER_BIAS, ROUTER_GAIN };
enum { ROUTER_GATE, ROUTER_NORMALIZE, ROUTER_SCALE, ROUTER_N_GROUPS, ROUTER_N_GROUPS_USED };

/* Ranks are integers in the order of floats: NaN is below all floats, a chosen expert below NaN. */
enum { RANK_TAKEN = INT32_MIN, RANK_NAN, RANK_MINUS_INFINITY = INT32_MIN + 0x7FFFFF };

/* A thread's scratch: two arrays of [n_experts] and one of [n_groups], padded to whole vectors. */
typedef struct {
    const float *logits, *bias;  /* bias: NULL if absent */
    float *scores;
    int32_t *ranks, *group_ranks;
    uint32_t n_experts;
} routing;

INLINE uint32_t whole_vectors(uint32_t n) { return (n + 15) / 16 * 16; }

static uint64_t routing_words(const cam_op *op) {
    uint64_t n_groups = whole_vectors((uint32_t)op->attrs[ROUTER_N_GROUPS]);
    return 2ull * whole_vectors(op->views[ROUTER_LOGITS].cols) + n_groups;
}
static uint64_t scratch_router(const cam_op *op, const cam_program *program, uint32_t n_threads) {
    (void)program;
    return 4 * routing_words(op) * n_threads;
}

static routing routing_of(const cam_op *op, const cam_run *run, uint32_t thread) {
    uint32_t n_experts = op->views[ROUTER_LOGITS].cols, n_ranks = whole_vectors(n_experts);
    int32_t *at = AT(int32_t, run->program->scratch) + routing_words(op) * thread;
    return (routing){
        .bias = AT(float, op->weights[ROUTER_BIAS].at),
        .ranks = at, .group_ranks = at + 2 * n_ranks, .scores = (float *)(at + n_ranks),
        .n_experts = n_experts,
    };
}

/* Id of the largest lane; ties to the lowest id. */
static uint32_t best_lane(vi rank, vi id) {
    int best = 0;
    for (int i = 1; i < LANES; i++)
        if (rank[i] > rank[best] || (rank[i] == rank[best] && id[i] < id[best])) best = i;
    return (uint32_t)id[best];
}

/* Index of the largest of n ranks, ties to the lowest; marks it as taken. */
static uint32_t take_best(int32_t *ranks, uint32_t n) {
    vi best = vi_set(RANK_TAKEN), at = vi_set(0), id;
    for (int i = 0; i < LANES; i++) id[i] = i;
    for (uint32_t i = 0; i < n; i += LANES, id += LANES) {
        vi rank;
        memcpy(&rank, ranks + i, sizeof rank);
        vi better = rank > best;
        best = (rank & better) | (best & ~better), at = (id & better) | (at & ~better);
    }
    uint32_t taken = best_lane(best, at);
    ranks[taken] = RANK_TAKEN;
    return taken;
}

static void put_rank(int32_t *rank, vf x, uint32_t left) {
    vi is_left = lanes_left(left);
    vi ranks = (vi_order(x, RANK_NAN) & is_left) | (~is_left & RANK_TAKEN);
    memcpy(rank, &ranks, sizeof ranks);
}

static float largest_float(const float *x, uint32_t n) {
    vf top = vf_set(-__builtin_inff());
    for (uint32_t i = 0; i < n; i += LANES)
        top = vf_max(top, vf_pick(lanes_left(n - i), vf_get(x + i, n - i), top));
    return vf_top(top);
}

/* y = softmax(x); all NaN if any x is NaN. y may be x. */
static void softmax_floats(float *y, const float *x, uint32_t n) {
    vf sum = {0}, top = vf_set(largest_float(x, n));
    for (uint32_t i = 0; i < n; i += LANES) {
        vf part = vf_first(vf_exp(vf_get(x + i, n - i) - top), n - i);
        sum += part;
        vf_put(y + i, n - i, part);
    }
    vf total = vf_set(vf_sum(sum));
    for (uint32_t i = 0; i < n; i += LANES) vf_put(y + i, n - i, vf_get(y + i, n - i) / total);
}

static void find_scores(routing r, uint32_t gate) {
    if (gate == WORD_softmax) softmax_floats(r.scores, r.logits, r.n_experts);
    else for (uint32_t i = 0; i < r.n_experts; i += LANES) {
        vf logits = vf_get(r.logits + i, r.n_experts - i);
        vf_store(r.scores + i, gate == WORD_sigmoid ? vf_sigmoid(logits) : logits);
    }
}

/* Ranks experts by score plus bias. Without a bias the logits are ranked instead: scores are monotonic in the
 * logits, but tie where they saturate. */
static void rank_experts(routing r) {
    for (uint32_t i = 0; i < r.n_experts; i += LANES) {
        uint32_t left = r.n_experts - i;
        vf x = r.bias ? vf_get(r.scores + i, left) + vf_get(r.bias + i, left) : vf_get(r.logits + i, left);
        put_rank(r.ranks + i, x, left);
    }
}

/* Sum of the two largest biased scores of n experts from `start` on; NaN if any score is NaN. */
static float pair_sum(routing r, uint32_t start, uint32_t n) {
    float first = -__builtin_inff(), second = first, nan = 0.0f;
    for (uint32_t i = start; i < start + n; i++) {
        float x = r.bias ? r.scores[i] + r.bias[i] : r.scores[i];
        if (x != x) nan = x;
        second = x > first ? first : x > second ? x : second;
        first = x > first ? x : first;
    }
    return (n > 1 ? first + second : first) + nan;
}

/* Ranks experts outside the best groups at minus infinity (DeepSeek-V3, arXiv 2412.19437). */
static void leave_groups(routing r, uint32_t n_groups, uint32_t n_used) {
    uint32_t size = r.n_experts / n_groups;
    for (uint32_t g = 0; g < whole_vectors(n_groups); g++) r.group_ranks[g] = RANK_TAKEN;
    for (uint32_t g = 0; g < n_groups; g++)
        r.group_ranks[g] = vi_order(vf_set(pair_sum(r, g * size, size)), RANK_NAN)[0];
    for (uint32_t i = 0; i < n_used; i++) take_best(r.group_ranks, n_groups);
    for (uint32_t i = 0; i < r.n_experts; i++)
        if (r.group_ranks[i / size] != RANK_TAKEN) r.ranks[i] = RANK_MINUS_INFINITY;
}

/* The softmax of a score among the experts not yet chosen whose scores are near it (arXiv 2409.12136). */
static float near_share(routing r, float score) {
    const vf top = vf_set(score);
    vf sum = {0};
    for (uint32_t i = 0; i < r.n_experts; i += LANES) {
        vf x = vf_get(r.scores + i, r.n_experts - i);
        vi is_near = top - x <= vf_max(vf_abs(x), top) * 0.02f;
        sum += vf_first(vf_pick(is_near, vf_exp(x - top), vf_set(0.0f)), r.n_experts - i);
    }
    return 1.0f / vf_sum(sum);
}

static void weigh(const cam_op *op, const float *ids, float *probs, uint32_t n) {
    const float *gain = AT(float, op->weights[ROUTER_GAIN].at); /* NULL if absent */
    if ((uint32_t)op->attrs[ROUTER_GATE] == WORD_topk_softmax) softmax_floats(probs, probs, n);
    float total = op->attrs[ROUTER_NORMALIZE] != 0 ? sum_floats(probs, n) : 1.0f;
    for (uint32_t i = 0; i < n; i++) {
        const float by = gain ? gain[(uint32_t)ids[i]] : 1.0f;
        probs[i] = probs[i] / total * (float)op->attrs[ROUTER_SCALE] * by;
    }
}

static void route_row(const cam_op *op, routing r, float *ids, float *probs) {
    uint32_t n_groups = (uint32_t)op->attrs[ROUTER_N_GROUPS];
    uint32_t n_used = (uint32_t)op->attrs[ROUTER_N_GROUPS_USED], gate = (uint32_t)op->attrs[ROUTER_GATE];
    find_scores(r, gate);
    rank_experts(r);
    if (n_used < n_groups) leave_groups(r, n_groups, n_used);
    for (uint32_t slot = 0; slot < op->views[ROUTER_IDS].cols; slot++) {
        uint32_t id = take_best(r.ranks, r.n_experts);
        ids[slot] = (float)id, probs[slot] = r.scores[id];
        if (gate != WORD_sparsemixer) continue;
        probs[slot] = near_share(r, probs[slot]);
        r.scores[id] = -__builtin_inff();
    }
    weigh(op, ids, probs, op->views[ROUTER_IDS].cols);
}

static void op_router(const cam_op *op, const cam_run *run, uint32_t thread) {
    routing r = routing_of(op, run, thread);
    cam_range rows = share(n_rows(run, &op->views[ROUTER_LOGITS]), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++) {
        r.logits = row_of(&op->views[ROUTER_LOGITS], t);
        route_row(op, r, row_of(&op->views[ROUTER_IDS], t), row_of(&op->views[ROUTER_PROBS], t));
    }
}

"""MLX kernels of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

from camelid.plan.plan import Op
from camelid_native.mlx.arrays import F32, U32, Array, indices, mx
from camelid_native.mlx.order import ids_of, ordered
from camelid_native.mlx.trace import Trace

NEAR = 0.02  # as in the reference


def op_router(op: Op, f: Trace) -> None:
    logits, n_used = f.read(op.view("logits")), op.view("ids").cols
    probs = SCORES[op.word("gate")](logits)
    biased = probs + f.weights.vector(op.weight("bias")) if op.has("bias") else probs
    # Without a bias logits have the order of scores, which tie where float32 saturates.
    ranks = biased if op.has("bias") else logits
    ranks = mx.where(_is_in_best_groups(op, biased), ranks, -mx.inf)
    order = ids_of(ordered(ranks))  # [T, E]
    ids = order[:, :n_used]  # [T, U]
    chosen = mx.take_along_axis(probs, ids, axis=1)
    if op.word("gate") == "topk_softmax":
        chosen = mx.softmax(chosen, axis=1)
    if op.word("gate") == "sparsemixer":
        chosen = _near_shares(mx.take_along_axis(logits, order, axis=1), n_used)
    if op.integer("normalize"):
        chosen = chosen / chosen.sum(axis=1, keepdims=True)
    if op.has("gain"):
        chosen = chosen * f.weights.vector(op.weight("gain"))[ids]
    f.write(op.view("ids"), ids.astype(F32))
    f.write(op.view("probs"), op.number("scale") * chosen)


def _near_shares(logits: Array, n_used: int) -> Array:  # [T, E], largest first -> [T, U]
    """Softmax of each slot's logit over the logits from it on that are near it (arXiv 2409.12136)."""
    shares = list[Array]()
    for slot in range(n_used):
        top, left = logits[:, slot, None], logits[:, slot:]
        is_near = top - left <= NEAR * mx.maximum(mx.abs(left), top)
        shares.append(1.0 / mx.where(is_near, mx.exp(left - top), 0.0).sum(axis=1))
    return mx.stack(shares, axis=1)


def op_linear_experts(op: Op, f: Trace) -> None:
    weight, ids = op.weight("weight"), f.read(op.view("ids")).astype(U32)  # ids: [T, U]
    x = f.read(op.view("x")).reshape(len(ids), -1, weight.cols)  # [T, 1 or U, in]
    y = f.weights.expert_product(x, weight, ids)  # [T, U, out]
    if op.has("bias"):
        y = y + f.weights.matrix(op.weight("bias"))[ids]
    f.write(op.view("y"), y.reshape(len(ids), -1))


def op_combine(op: Op, f: Trace) -> None:
    probs = f.read(op.view("probs"))  # [T, U]
    x = f.read(op.view("x")).reshape(*probs.shape, -1)  # [T, U, C]
    f.write(op.view("y"), (probs[:, None] @ x).squeeze(1))


def _is_in_best_groups(op: Op, scores: Array) -> Array:  # [T, E]
    """True for experts of the groups with the best pairs (DeepSeek-V3, arXiv 2412.19437)."""
    n_groups, n_used = op.integer("n_groups"), op.integer("n_groups_used")
    if n_used == n_groups:
        return mx.array(True)
    groups = scores.reshape(len(scores), n_groups, -1)  # [T, G, E / G]
    pairs = mx.sort(groups, axis=2)[..., -2:].sum(axis=2)  # [T, G]
    best = ids_of(ordered(pairs)[:, :n_used])  # [T, used]
    is_best = (best[..., None] == indices(n_groups)).any(axis=1)  # [T, G]
    return mx.repeat(is_best, groups.shape[2], axis=1)


SCORES: dict[str, Callable[[Array], Array]] = {
    "softmax": lambda x: mx.softmax(x, axis=1),
    "sigmoid": mx.sigmoid,
    "topk_softmax": lambda x: x,
    "sparsemixer": lambda x: x,
}

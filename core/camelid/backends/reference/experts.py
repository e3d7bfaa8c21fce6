"""Reference kernels of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from camelid.backends.reference.basic import gated
from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, sigmoid, softmax
from camelid.plan.plan import Op

NEAR = 0.02  # distance of logits, in parts of the larger of the two, up to which the sparse mixer counts both


def op_router(op: Op, f: Frame) -> None:
    logits, n_used = f.read(op.view("logits")), op.view("ids").cols
    probs = SCORES[op.word("gate")](logits)
    biased = probs + f.store.vector(op.weight("bias")) if op.has("bias") else probs
    allowed = _in_best_groups(biased, op.integer("n_groups"), op.integer("n_groups_used"))
    ids = np.argsort(-allowed, axis=1, kind="stable")[:, :n_used]  # ties: lowest id
    chosen = np.take_along_axis(probs, ids, axis=1)
    if op.word("gate") == "topk_softmax":
        chosen = softmax(chosen)
    if op.word("gate") == "sparsemixer":
        chosen = _near_shares(probs, ids)
    if op.integer("normalize"):
        chosen = chosen / chosen.sum(axis=1, keepdims=True)
    if op.has("gain"):
        chosen = chosen * f.store.vector(op.weight("gain"))[ids]
    f.write(op.view("ids"), ids)
    f.write(op.view("probs"), op.number("scale") * chosen)


def _near_shares(logits: F64, ids: NDArray[np.intp]) -> F64:  # [T, E], [T, U] -> [T, U]
    """Softmax of each chosen expert over the experts near it, without earlier choices (arXiv 2409.12136)."""
    left, shares = logits.copy(), np.empty(ids.shape)
    for slot in range(ids.shape[1]):
        top = np.take_along_axis(logits, ids[:, slot, None], axis=1)  # [T, 1]
        is_near = top - left <= NEAR * np.maximum(np.abs(logits), top)
        shares[:, slot] = 1.0 / np.where(is_near, np.exp(left - top), 0.0).sum(axis=1)
        np.put_along_axis(left, ids[:, slot, None], -np.inf, axis=1)
    return shares


def op_linear_experts(op: Op, f: Frame) -> None:
    y = _products(op, f)
    f.write(op.view("y"), y.reshape(len(y), op.view("y").cols))


def op_linear_experts_glu(op: Op, f: Frame) -> None:
    y = gated(op.word("act"), _products(op, f), _products(op, f, "up_"))
    f.write(op.view("y"), y.reshape(len(y), op.view("y").cols))


def op_linear_experts_sum(op: Op, f: Frame) -> None:
    f.write(op.view("y"), _sum_of_slots(f.read(op.view("probs")), _products(op, f)))


def op_combine(op: Op, f: Frame) -> None:
    probs = f.read(op.view("probs"))  # [T, U]
    x = f.read(op.view("x")).reshape(*probs.shape, op.view("y").cols)  # [T, U, C]
    f.write(op.view("y"), _sum_of_slots(probs, x))


def _products(op: Op, f: Frame, half: str = "") -> F64:  # [T, U, out]
    """The outputs of the chosen experts by slot, with the weight and bias of this half."""
    weight, ids = op.weight(f"{half}weight"), f.read(op.view("ids")).astype(int)  # ids: [T, U]
    n_in = weight.cols
    x = f.read(op.view("x")).reshape(len(ids), op.view("x").cols // n_in, n_in)  # [T, 1 or U, in]
    y = np.zeros((*ids.shape, weight.shape[1]))
    for expert in np.unique(ids):
        where = np.argwhere(ids == expert)
        rows = np.stack([x[t, slot % x.shape[1]] for t, slot in where])
        y[tuple(where.T)] = f.store.multiply_expert(weight, int(expert), rows)
    return y + f.store.matrix(op.weight(f"{half}bias"))[ids] if op.has(f"{half}bias") else y


def _sum_of_slots(probs: F64, x: F64) -> F64:  # [T, U], [T, U, C] -> [T, C]
    y = np.zeros_like(x[:, 0])
    for slot in range(probs.shape[1]):
        y += probs[:, slot, None] * x[:, slot]
    return y


def _in_best_groups(scores: F64, n_groups: int, n_used: int) -> F64:  # [T, E]
    """Sets scores to -inf outside the `n_used` groups with the best pairs (DeepSeek-V3, arXiv 2412.19437)."""
    if n_used == n_groups:
        return scores
    groups = scores.reshape(len(scores), n_groups, scores.shape[1] // n_groups)  # [T, G, E / G]
    pairs = np.sort(groups, axis=2)[..., -2:].sum(axis=2)  # [T, G]
    best = np.argsort(-pairs, axis=1, kind="stable")[:, :n_used]
    kept = np.full_like(groups, -np.inf)
    np.put_along_axis(kept, best[..., None], np.take_along_axis(groups, best[..., None], axis=1), axis=1)
    return kept.reshape(scores.shape)


SCORES: dict[str, Callable[[F64], F64]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "topk_softmax": lambda x: x,
    "sparsemixer": lambda x: x,
}

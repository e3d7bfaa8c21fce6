"""Reference kernels of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, sigmoid, softmax
from camelid.plan.plan import Op


def op_router(op: Op, f: Frame) -> None:
    logits, n_used = f.read(op.view("logits")), op.view("ids").cols
    probs = SCORES[op.word("gate")](logits)
    biased = probs + f.store.vector(op.weight("bias")) if op.has("bias") else probs
    allowed = _in_best_groups(biased, op.integer("n_groups"), op.integer("n_groups_used"))
    ids = np.argsort(-allowed, axis=1, kind="stable")[:, :n_used]  # ties: lowest id
    chosen = np.take_along_axis(probs, ids, axis=1)
    if op.word("gate") == "topk_softmax":
        chosen = softmax(chosen)
    if op.integer("normalize"):
        chosen = chosen / chosen.sum(axis=1, keepdims=True)
    f.write(op.view("ids"), ids)
    f.write(op.view("probs"), op.number("scale") * chosen)


def op_linear_experts(op: Op, f: Frame) -> None:
    ids = f.read(op.view("ids")).astype(int)  # [T, U]
    n_in = op.weight("weight").cols
    x = f.read(op.view("x")).reshape(len(ids), op.view("x").cols // n_in, n_in)  # [T, 1 or U, in]
    y = np.zeros((*ids.shape, op.weight("weight").shape[1]))  # [T, U, out]
    for expert in np.unique(ids):
        where = np.argwhere(ids == expert)
        rows = np.stack([x[t, slot % x.shape[1]] for t, slot in where])
        y[tuple(where.T)] = f.store.multiply_expert(op.weight("weight"), int(expert), rows)
    if op.has("bias"):
        y += f.store.matrix(op.weight("bias"))[ids]
    f.write(op.view("y"), y.reshape(len(ids), op.view("y").cols))


def op_combine(op: Op, f: Frame) -> None:
    probs = f.read(op.view("probs"))  # [T, U]
    x = f.read(op.view("x")).reshape(*probs.shape, op.view("y").cols)  # [T, U, C]
    y = np.zeros_like(x[:, 0])
    for slot in range(probs.shape[1]):
        y += probs[:, slot, None] * x[:, slot]
    f.write(op.view("y"), y)


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
}

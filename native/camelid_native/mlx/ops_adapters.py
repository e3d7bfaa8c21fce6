"""MLX kernels of adapters: low-rank terms by the slot of each row's sequence (`plan/op_rows_adapters.py`).

Each row gathers its own term, which fits the tests and small models on a CPU; a GPU has kernels that read the
slots in place (`metal/adapter.metal`).
"""

from __future__ import annotations

from typing import NamedTuple

from camelid.plan.op_rows_adapters import HEADER_FLOATS
from camelid.plan.plan import Op
from camelid_native.mlx.arrays import U32, Array, indices, mx
from camelid_native.mlx.trace import Trace


class Terms(NamedTuple):
    """The terms of U slots of experts of T rows, zeros from the rank on: `scales` are [T, 1, R], `a` is
    [T, U, R, in] and `b` [T, U, R, out].
    """

    scales: Array
    a: Array
    b: Array


def op_low_rank(op: Op, f: Trace) -> None:
    x, y, slots = f.read(op.view("x")), f.read(op.view("y")), _slots(op, f)
    if op.integer("deferred"):
        x = _normed(x, op.integer("n_in"), op.number("eps"))
    terms = _terms(op, f, slots, mx.zeros((len(x), 1), dtype=U32), 1)
    term = op.number("scale") * _added(terms, x[:, None])[:, 0]
    f.write(op.view("y"), mx.where((slots > 0)[:, None], y + term, y))


def op_low_rank_experts(op: Op, f: Trace) -> None:
    ids = f.read(op.view("ids")).astype(U32)  # [T, U]
    x, y, slots = f.read(op.view("x")), f.read(op.view("y")), _slots(op, f)
    terms = _terms(op, f, slots, ids, op.integer("experts"))
    term = _added(terms, x.reshape(len(x), -1, op.integer("n_in"))).reshape(y.shape)
    f.write(op.view("y"), mx.where((slots > 0)[:, None], y + term, y))


def _slots(op: Op, f: Trace) -> Array:  # [rows of y]
    """The adapter slot of each row."""
    words = f.of_outputs if op.view("y").rows == "O" else f.of_rows
    return f.sequence_word(words, "adapter")


def _terms(op: Op, f: Trace, slots: Array, ids: Array, n_experts: int) -> Terms:
    state, most, n_in = op.state("adapters"), op.integer("rank"), op.integer("n_in")
    n_out = op.view("y").cols // ids.shape[1]
    held = f.state[state.group, state.layer, str(op.integer("tensor"))]  # [units, floats]
    first = (mx.where(slots < len(held), slots, 0) * held.shape[1])[:, None]  # [T, 1]
    a_at = HEADER_FLOATS + most
    b_at = a_at + n_experts * most * n_in
    floats = held.reshape(-1)
    is_used = indices(most) < floats[first + most]  # [T, R]
    scales = mx.where(is_used, floats[first + indices(most)], 0.0)
    parts = [
        floats[(first + at + ids * most * n)[..., None] + indices(most * n)].reshape(*ids.shape, most, n)
        for at, n in ((a_at, n_in), (b_at, n_out))
    ]
    return Terms(scales[:, None], *(mx.where(is_used[:, None, :, None], part, 0.0) for part in parts))


def _added(terms: Terms, x: Array) -> Array:  # [T, 1 or U, in] -> [T, U, out]
    u = terms.scales * (terms.a @ x[..., None]).squeeze(-1)  # [T, U, R]
    return (u[..., None, :] @ terms.b).squeeze(-2)


def _normed(x: Array, n: int, eps: float) -> Array:  # a deferred norm [T, n + n / 4] -> [T, n]
    return x[:, :n] / mx.sqrt(x[:, n:].sum(axis=1, keepdims=True) / n + eps)

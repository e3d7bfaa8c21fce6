"""Kernels of the reference: state changes, embeddings, norms, linear maps, RoPE, activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from camelid.backends.reference.frame import F64, Frame, per_row
from camelid.plan.plan import Op
from camelid.plan.step import FROM_RING, StepRow


def op_tables(op: Op, f: Frame) -> None:
    group = op.state("state").group
    for number, table_row, index, unit in f.step.updates:
        if number == f.plan.group(group):
            f.state.tables[group][table_row, index] = unit


def op_copy(op: Op, f: Frame) -> None:
    group = op.state("state").group
    for number, source, destination, rows in f.step.copies:
        if number == f.plan.group(group):
            for (name, _, _), pool in f.state.pools.items():
                if name == group:
                    pool[destination, :rows] = pool[source, :rows]


def op_embed(op: Op, f: Frame) -> None:
    ring = f.state.tensor(op.state("tokens"), "id")  # [slots, R, 1]

    def token(row: StepRow) -> int:
        if row.source != FROM_RING:
            return row.value
        slot = f.sequence_words(row, op.state("tokens").group)[0]
        return int(ring[slot, row.state_row % ring.shape[1], 0])

    f.write(op.view("y"), f.store.matrix(op.weight("weight"))[[token(row) for row in f.step.rows]])


def op_norm(op: Op, f: Frame) -> None:
    x, gain = f.read(op.view("x")), f.store.matrix(op.weight("gain"))
    eps = op.number("eps")
    f.write(op.view("y"), per_row(lambda row: row / np.sqrt(np.mean(row * row) + eps) * gain[0], x))


def op_add(op: Op, f: Frame) -> None:
    f.write(op.view("x"), f.read(op.view("x")) + f.read(op.view("r")))


def op_add_norm(op: Op, f: Frame) -> None:
    op_add(op, f)
    op_norm(op, f)


def op_linear(op: Op, f: Frame) -> None:
    weight = f.store.matrix(op.weight("weight"))
    f.write(op.view("y"), per_row(lambda row: weight @ row, f.read(op.view("x"))))


def op_rope(op: Op, f: Frame) -> None:
    dim, head_dim = op.integer("dim"), op.integer("head_dim")
    fine, coarse = f.store.matrix(op.weight("fine")), f.store.matrix(op.weight("coarse"))
    positions = np.array([row.positions[0] for row in f.step.rows])
    angles = fine[positions % len(fine)], coarse[positions // len(fine)]  # [T, dim] twice
    near, far = (table[:, 0::2] + 1j * table[:, 1::2] for table in angles)
    x = f.read(op.view("x"))
    heads = x.reshape(len(x), -1, head_dim)  # [T, H, D]
    first, second = _pairs(heads[..., :dim], op.word("style"))
    turned = (first + 1j * second) * (near * far)[:, None]
    first[...], second[...] = turned.real, turned.imag
    f.write(op.view("x"), x)


def op_glu(op: Op, f: Frame) -> None:
    f.write(op.view("y"), ACTS[op.word("act")](f.read(op.view("gate"))) * f.read(op.view("up")))


def op_linear_glu(op: Op, f: Frame) -> None:
    weight = f.store.matrix(op.weight("weight"))  # [2*F, C]
    both = per_row(lambda row: weight @ row, f.read(op.view("x")))
    gate, up = np.split(both, 2, axis=1)
    f.write(op.view("y"), ACTS[op.word("act")](gate) * up)


def op_gather_rows(op: Op, f: Frame) -> None:
    f.write(op.view("y"), f.read(op.view("x"))[[row for row, _, _ in f.step.outputs]])


def _pairs(x: F64, style: str) -> tuple[F64, F64]:
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if style == "norm" else (x[..., :half], x[..., half:])


ACTS: dict[str, Callable[[F64], F64]] = {"silu": lambda x: x / (1.0 + np.exp(-x))}

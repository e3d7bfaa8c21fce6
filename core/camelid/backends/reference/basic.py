"""Reference kernels: state changes, embeddings, norms, linear maps, RoPE, activations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, row_mean, row_sum, sigmoid
from camelid.plan.plan import Op
from camelid.plan.step import FROM_ID, FROM_RING, StepRow


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

    rows = f.store.rows(op.weight("weight"), [token(row) for row in f.step.rows])
    f.write(op.view("y"), rows * op.number("scale"))
    for sequence in f.step.sequences:
        slot = sequence.groups[f.plan.group(op.state("tokens").group)][1]
        end = sequence.first_row + sequence.rows
        for row in f.step.rows[max(sequence.first_row, end - ring.shape[1]) : end]:
            if row.source == FROM_ID:
                ring[slot, row.state_row % ring.shape[1], 0] = row.value


def op_embed_position(op: Op, f: Frame) -> None:
    positions = [row.positions[op.integer("channel")] for row in f.step.rows]
    f.write(op.view("x"), f.read(op.view("x")) + f.store.rows(op.weight("weight"), positions))


def op_norm(op: Op, f: Frame) -> None:
    x, eps, size = f.read(op.view("x")), op.number("eps"), op.integer("size")
    width = size or x.shape[1]
    y = NORMS[op.word("kind")](x.reshape(len(x), x.shape[1] // width, width), eps)  # [T, groups, size]
    if op.has("gain"):
        y = y * f.store.vector(op.weight("gain")).reshape(-1, width)
    if op.has("bias"):
        y = y + f.store.vector(op.weight("bias"))
    f.write(op.view("y"), y.reshape(x.shape))


def op_add(op: Op, f: Frame) -> None:
    f.write(op.view("x"), f.read(op.view("x")) + op.number("scale") * f.read(op.view("r")))


def op_all_reduce(op: Op, f: Frame) -> None:
    """On one device the sum has one term."""


def op_add_norm(op: Op, f: Frame) -> None:
    op_add(op, f)
    gain, eps = f.store.vector(op.weight("gain")), op.number("eps")
    f.write(op.view("y"), _rms(f.read(op.view("x")), eps) * gain)


def op_mul(op: Op, f: Frame) -> None:
    x, r = f.read(op.view("x")), f.read(op.view("r"))
    f.write(op.view("x"), x * np.repeat(r, x.shape[1] // r.shape[1], axis=1))


def op_scale(op: Op, f: Frame) -> None:
    f.write(op.view("x"), op.number("by") * f.read(op.view("x")))


def op_softcap(op: Op, f: Frame) -> None:
    cap = op.number("cap")
    f.write(op.view("x"), cap * np.tanh(f.read(op.view("x")) / cap))


def op_clamp(op: Op, f: Frame) -> None:
    limit = op.number("limit")
    x: F64 = np.clip(f.read(op.view("x")), -limit, limit)
    f.write(op.view("x"), x)


def op_unary(op: Op, f: Frame) -> None:
    f.write(op.view("x"), ACTS[op.word("act")](f.read(op.view("x"))))


def op_xielu(op: Op, f: Frame) -> None:
    x = f.read(op.view("x"))
    p, n, b, e = map(float, f.store.vector(op.weight("alpha")))
    f.write(op.view("x"), b * x + np.where(x > 0.0, p * x * x, n * (np.expm1(np.minimum(x, e)) - x)))


def op_temperature(op: Op, f: Frame) -> None:
    steps = np.array([[(row.positions[0] + 1) // op.integer("length")] for row in f.step.rows])  # [T, 1]
    f.write(op.view("x"), f.read(op.view("x")) * (1.0 + op.number("by") * np.log1p(steps)))


def op_linear(op: Op, f: Frame) -> None:
    y = f.store.multiply(op.weight("weight"), f.read(op.view("x")))  # [T, out]
    f.write(op.view("y"), y + f.store.vector(op.weight("bias")) if op.has("bias") else y)


def op_rope(op: Op, f: Frame) -> None:
    dim, head_dim = op.integer("dim"), op.integer("head_dim")
    fine, coarse = f.store.matrix(op.weight("fine")), f.store.matrix(op.weight("coarse"))
    positions = np.array([row.positions[op.integer("channel")] for row in f.step.rows])
    angles = fine[positions % len(fine)], coarse[positions // len(fine)]  # [T, dim] twice
    near, far = (table[:, 0::2] + 1j * table[:, 1::2] for table in angles)
    x = f.read(op.view("x"))
    heads = x.reshape(len(x), -1, head_dim)[..., op.integer("offset") :]  # [T, H, D]
    first, second = _pairs(heads[..., :dim], op.word("style"))
    rotated = (first + 1j * second) * (near * far)[:, None]
    first[...], second[...] = rotated.real, rotated.imag
    f.write(op.view("x"), x)


def op_glu(op: Op, f: Frame) -> None:
    f.write(op.view("y"), gated(op.word("act"), f.read(op.view("gate")), f.read(op.view("up"))))


def op_linear_glu(op: Op, f: Frame) -> None:
    both = f.store.multiply(op.weight("weight"), f.read(op.view("x")))  # [T, 2*F]
    f.write(op.view("y"), gated(op.word("act"), *np.split(both, 2, axis=1)))


def op_gather_rows(op: Op, f: Frame) -> None:
    f.write(op.view("y"), f.read(op.view("x"))[[row for row, _, _ in f.step.outputs]])


def _pairs(x: F64, style: str) -> tuple[F64, F64]:
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if style == "norm" else (x[..., :half], x[..., half:])


def gated(act: str, gate: F64, up: F64) -> F64:
    """The activation of `gate` times `up`, or the gate function of this name."""
    if act in GATES:
        return GATES[act](gate, up)
    return ACTS[act](gate) * up


def _rms(x: F64, eps: float) -> F64:
    return x / np.sqrt(row_mean(x * x) + eps)


def _layer(x: F64, eps: float) -> F64:
    centred = x - row_mean(x)
    return centred / np.sqrt(row_mean(centred * centred) + eps)


def _l2(x: F64, eps: float) -> F64:
    return x / np.sqrt(np.maximum(row_sum(x * x), eps * eps))


def _gelu_tanh(x: F64) -> F64:
    """GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415)."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def _gelu_erf(x: F64) -> F64:
    erf = np.array([math.erf(value) for value in (x / np.sqrt(2.0)).ravel()])
    return 0.5 * x * (1.0 + erf.reshape(x.shape))


def _swiglu_oai(gate: F64, up: F64) -> F64:
    """SwiGLU of gpt-oss: gate <= 7, -7 <= up <= 7, sigmoid of 1.702 * gate, factor up + 1."""
    gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    return gate * sigmoid(1.702 * gate) * (up + 1.0)


NORMS: dict[str, Callable[[F64, float], F64]] = {"rms": _rms, "layer": _layer, "l2": _l2}
ACTS: dict[str, Callable[[F64], F64]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "relu": lambda x: np.maximum(x, 0.0),
    "relu2": lambda x: np.maximum(x, 0.0) ** 2,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}
GATES: dict[str, Callable[[F64, F64], F64]] = {"swiglu_oai": _swiglu_oai}  # gates that also transform `up`

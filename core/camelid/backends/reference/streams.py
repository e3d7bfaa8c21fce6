"""Reference kernels of a matrix per head (MLA, AltUp), concat, L2 norm, and linear combination, affine map
and threshold of activations (AltUp, Gemma 3n)."""

from __future__ import annotations

import numpy as np

from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import row_mean, row_sum
from camelid.plan.plan import Op


def op_linear_heads(op: Op, f: Frame) -> None:
    weight = op.weight("weight")
    n_heads, _, n_in = weight.shape
    x = f.read(op.view("x")).reshape(-1, n_heads, op.view("x").cols // n_heads)  # [T, H, in + unchanged]
    outputs = [f.store.multiply_expert(weight, h, x[:, h, :n_in]) for h in range(n_heads)]
    y = np.concatenate([np.stack(outputs, axis=1), x[..., n_in:]], axis=2)
    f.write(op.view("y"), y.reshape(-1, op.view("y").cols))


def op_concat(op: Op, f: Frame) -> None:
    f.write(op.view("y"), np.concatenate([f.read(op.view("a")), f.read(op.view("b"))], axis=1))


def op_length(op: Op, f: Frame) -> None:
    n_groups = op.view("y").cols
    groups = f.read(op.view("x")).reshape(-1, op.view("x").cols // n_groups)
    f.write(op.view("y"), np.sqrt(row_sum(groups * groups)).reshape(-1, n_groups))


def op_mix(op: Op, f: Frame) -> None:
    size, width = op.integer("size"), op.view("y").cols
    x = f.read(op.view("x")).reshape(-1, op.view("x").cols // size, size)  # [T, M, size]
    coefs = f.read(op.view("coefs")).reshape(-1, width // size, x.shape[1])  # [T, N, M]
    y = np.zeros((len(x), coefs.shape[1], x.shape[2]))
    for j in range(x.shape[1]):
        y += coefs[:, :, j, None] * x[:, None, j]
    f.write(op.view("y"), y.reshape(-1, width))


def op_affine(op: Op, f: Frame) -> None:
    y = f.read(op.view("x")) * f.store.vector(op.weight("weight"))
    f.write(op.view("y"), y + f.store.vector(op.weight("bias")) if op.has("bias") else y)


def op_cutoff(op: Op, f: Frame) -> None:
    x = f.read(op.view("x"))
    centred = x - row_mean(x)
    deviation = np.sqrt(row_mean(centred * centred))
    f.write(op.view("x"), np.maximum(centred - op.number("deviations") * deviation, 0.0))

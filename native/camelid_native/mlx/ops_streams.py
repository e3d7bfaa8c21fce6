"""MLX kernels: concat, L2 norm, and linear combination, affine map and threshold of activations."""

from __future__ import annotations

from camelid.plan.plan import Op
from camelid_native.mlx.arrays import mx
from camelid_native.mlx.trace import Trace


def op_concat(op: Op, f: Trace) -> None:
    f.write(op.view("y"), mx.concatenate([f.read(op.view("a")), f.read(op.view("b"))], axis=1))


def op_length(op: Op, f: Trace) -> None:
    x = f.read(op.view("x"))
    groups = x.reshape(len(x), op.view("y").cols, -1)
    f.write(op.view("y"), mx.sqrt((groups * groups).sum(axis=2)))


def op_mix(op: Op, f: Trace) -> None:
    size, width = op.integer("size"), op.view("y").cols
    x = f.read(op.view("x")).reshape(-1, op.view("x").cols // size, size)  # [T, M, size]
    coefs = f.read(op.view("coefs")).reshape(len(x), width // size, -1)  # [T, N, M]
    f.write(op.view("y"), (coefs @ x).reshape(len(x), width))


def op_affine(op: Op, f: Trace) -> None:
    y = f.read(op.view("x")) * f.weights.vector(op.weight("weight"))
    f.write(op.view("y"), y + f.weights.vector(op.weight("bias")) if op.has("bias") else y)


def op_cutoff(op: Op, f: Trace) -> None:
    x = f.read(op.view("x"))
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = mx.sqrt((centred * centred).mean(axis=1, keepdims=True))
    f.write(op.view("x"), mx.maximum(centred - op.number("deviations") * deviation, 0.0))

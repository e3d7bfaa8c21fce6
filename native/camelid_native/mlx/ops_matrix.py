"""MLX kernels: matrix products, alone and with a gate, and a matrix per head."""

from __future__ import annotations

from camelid.plan.plan import Op
from camelid_native.mlx.arrays import mx
from camelid_native.mlx.ops_basic import gated
from camelid_native.mlx.trace import Trace


def op_linear(op: Op, f: Trace) -> None:
    y = f.weights.product(f.read(op.view("x")), op.weight("weight"))  # [T, out]
    f.write(op.view("y"), y + f.weights.vector(op.weight("bias")) if op.has("bias") else y)


def op_linear_glu(op: Op, f: Trace) -> None:
    both = f.weights.product(f.read(op.view("x")), op.weight("weight"))  # [T, 2*F]
    gate, up = mx.split(both, 2, axis=1)
    f.write(op.view("y"), gated(op.word("act"), gate, up))


def op_linear_heads(op: Op, f: Trace) -> None:
    n_heads, _, n_in = op.weight("weight").shape
    x = f.read(op.view("x"))
    heads = x.reshape(len(x), n_heads, -1).swapaxes(0, 1)  # [H, T, in + unchanged]
    y = heads[..., :n_in] @ f.weights.matrix(op.weight("weight")).swapaxes(1, 2)  # [H, T, out]
    whole = mx.concatenate([y, heads[..., n_in:]], axis=2) if heads.shape[2] > n_in else y
    f.write(op.view("y"), whole.swapaxes(0, 1).reshape(len(x), -1))

"""Kernel rows of elementwise ops, norms, gathers and activations."""

from __future__ import annotations

from camelid.plan.plan import Op
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels
from camelid_native.cuda.signature import Values

NORM_KINDS = {"rms": 0, "layer": 1, "l2": 2}


def _group_size(op: Op) -> int:
    return op.integer("size") or op.view("x").cols


def _norm_values(op: Op, _: Context) -> Values:
    size = _group_size(op)
    has_own = op.has("gain") and op.weight("gain").rows > 1
    return {"size": size, "gain_step": size if has_own else 0, "eps": op.number("eps")}


def _norm_grid(op: Op, c: Context) -> Grid:
    return (op.view("x").cols // _group_size(op), c.rows(op, "x"), 1)


KERNELS: dict[str, OpKernels] = {
    "norm": OpKernels((Kernel("norm", _norm_grid, _norm_values),), ("eps", "size"), {"kind": NORM_KINDS}),
}

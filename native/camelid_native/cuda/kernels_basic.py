"""Kernel rows of elementwise ops, norms, gathers and activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from camelid.plan.plan import Op
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, row_grid, width_grid
from camelid_native.cuda.signature import Value, Values

NORM_KINDS = {"rms": 0, "layer": 1, "l2": 2}
# The numbers of act.h.
ACTS = {"silu": 1, "gelu": 2, "gelu_erf": 3, "relu": 4, "relu2": 5, "sigmoid": 6, "tanh": 7}
GATES = {**ACTS, "swiglu_oai": 8}
MAYBE_ACTS = {"none": 0, **ACTS}


def _group_size(op: Op) -> int:
    return op.integer("size") or op.view("x").cols


def _norm_values(op: Op, _: Context) -> Values:
    size = _group_size(op)
    has_own = op.has("gain") and op.weight("gain").rows > 1
    return {"size": size, "gain_step": size if has_own else 0, "eps": op.number("eps")}


def _group_grid(op: Op, c: Context) -> Grid:
    return (op.view("x").cols // _group_size(op), c.rows(op, "x"), 1)


def _add_norm_values(op: Op, _: Context) -> Values:
    return {"size": op.view("x").cols, "scale": op.number("scale"), "eps": op.number("eps")}


def _cutoff_values(op: Op, _: Context) -> Values:
    return {"size": op.view("x").cols, "deviations": op.number("deviations")}


def _mix_values(op: Op) -> dict[str, Value]:
    size = op.integer("size")
    return {"size": size, "n": op.view("x").cols // size}


def _columns(
    name: str, role: str, more: Callable[[Op], dict[str, Value]] = lambda op: {}, *attrs: str
) -> Kernel:
    """A kernel of elementwise.cu: a thread per column of the view `role`; `attrs` are numbers for it."""

    def values(op: Op, _: Context) -> Values:
        numbers = {attr: op.number(attr) for attr in attrs}
        return {"cols": op.view(role).cols, **numbers, **more(op)}

    return Kernel("elementwise", width_grid(role), values, name=name)


def _plain(name: str, role: str, more: Callable[[Op], dict[str, Value]] = lambda op: {}) -> OpKernels:
    return OpKernels((_columns(name, role, more),))


def _scaled(name: str, attr: str) -> OpKernels:
    """An update of x with a number."""
    return OpKernels((_columns(name, "x", lambda op: {}, attr),), (attr,))


def _has_devices(_: Op, context: Context) -> bool:
    return context.n_devices > 1


KERNELS: dict[str, OpKernels] = {
    "norm": OpKernels(
        (Kernel("norm", _group_grid, _norm_values, name="normalize"),), ("eps", "size"), {"kind": NORM_KINDS}
    ),
    "add_norm": OpKernels(
        (Kernel("norm", row_grid("x"), _add_norm_values, name="add_norm"),), ("eps", "scale")
    ),
    "length": OpKernels(
        (Kernel("norm", _group_grid, lambda op, c: {"size": _group_size(op)}, name="length"),), ("size",)
    ),
    "cutoff": OpKernels((Kernel("norm", row_grid("x"), _cutoff_values, name="cutoff"),), ("deviations",)),
    "add": _scaled("add", "scale"),
    "all_reduce": OpKernels((replace(_columns("all_reduce", "x"), when=_has_devices),)),
    "scale": _scaled("scale", "by"),
    "softcap": _scaled("softcap", "cap"),
    "clamp": _scaled("clamp", "limit"),
    "xielu": _plain("xielu", "x"),
    "temperature": OpKernels(
        (_columns("temperature", "x", lambda op: {"length": op.integer("length")}, "by"),), ("by", "length")
    ),
    "mul": _plain("mul", "x", lambda op: {"each": op.view("x").cols // op.view("r").cols}),
    "unary": OpKernels((_columns("unary", "x"),), (), {"act": ACTS}),
    "glu": OpKernels((_columns("glu", "y"),), (), {"act": GATES}),
    "affine": _plain("affine", "y", lambda op: {"by": int(op.weight("weight").cols > 1)}),
    "concat": _plain("concat", "y", lambda op: {"a_cols": op.view("a").cols}),
    "gather_rows": _plain("gather_rows", "y"),
    "combine": _plain("combine", "y", lambda op: {"slots": op.view("probs").cols}),
    "mix": OpKernels((_columns("mix", "y", _mix_values),), ("size",)),
}

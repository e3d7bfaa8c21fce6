"""Kernel rows of a matrix per head (MLA, AltUp), concat, and linear combination, affine map, length and
threshold of activations (AltUp, Gemma 3n)."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import (
    LANES,
    Constants,
    Context,
    Grid,
    Kernel,
    row_grid,
    rows_of,
    tiles,
    width_grid,
)
from camelid.backends.webgpu.kernels_basic import group_grid, group_size
from camelid.backends.webgpu.kernels_matrix import WEIGHT, product_constants
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, Plan


def _head_width(op: Op, role: str) -> int:
    return op.view(role).cols // op.weight("weight").shape[0]


def _heads_constants(op: Op, c: Context) -> Constants:
    sizes: Constants = {"N": op.weight("weight").shape[1], "TOKENS": _tokens(op, c)}
    return product_constants(op, c) | sizes | {f"{role.upper()}_HEAD": _head_width(op, role) for role in "xy"}


def _tokens(op: Op, c: Context) -> int:
    return min(c.most_tokens, c.plan.rows[op.view("y").rows])


def _heads_grid(op: Op, c: Context) -> Grid:
    n_heads, n_out, _ = op.weight("weight").shape
    return (tiles(n_out, QUAD * LANES // c.lanes), rows_of(op, "y", _tokens(op, c)), n_heads)


def _refuses_width(op: Op, _: Plan) -> str:
    n = _head_width(op, "x")
    return f"heads of {n} floats; a multiple of {QUAD} is required" if n % QUAD else ""


def _concat_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("y").cols, "A_COLS": op.view("a").cols}


def _affine_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("y").cols, "STEP": int(op.weight("weight").cols > 1)}


def _refuses_output(op: Op, _: Plan) -> str:
    """concat_within reads b in the buffer of a."""
    name = op.view("y").buffer.name
    return f"two views of one buffer: y and b in {name}" if op.view("b").buffer.name == name else ""


def _mix_constants(op: Op, _: Context) -> Constants:
    size = op.integer("size")
    return {"C": op.view("y").cols, "SIZE": size, "GROUPS": op.view("x").cols // size}


def _cutoff_constants(op: Op, _: Context) -> Constants:
    return {"C": op.view("x").cols, "DEVIATIONS": op.number("deviations")}


KERNELS: dict[str, Kernel] = {
    "linear_heads": Kernel(("product", "linear_heads", "partial", "matvec"), ("y", "x", *WEIGHT),
                           _heads_constants, _heads_grid, codec="weight", vec4=("x",),
                           refuses=_refuses_width),
    "concat": Kernel(("concat_apart", "concat"), ("y", "a", "b"), _concat_constants, width_grid("y"),
                     within=Kernel(("concat_within", "concat"), ("y", "a"), _concat_constants,
                                   width_grid("y")), refuses=_refuses_output),
    "length": Kernel(("reduce", "length"), ("y", "x"), lambda op, c: {"SIZE": group_size(op)}, group_grid,
                     attrs=("size",)),
    "mix": Kernel(("mix",), ("y", "x", "coefs"), _mix_constants, width_grid("y"), attrs=("size",)),
    "affine": Kernel(("affine",), ("y", "x", "weight", "bias?"), _affine_constants, width_grid("y")),
    "cutoff": Kernel(("reduce", "cutoff"), ("x",), _cutoff_constants, row_grid("x"), attrs=("deviations",)),
}  # fmt: skip

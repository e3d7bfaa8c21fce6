"""Kernel rows of adapters: low-rank terms by the slot of each row's sequence, and the norm behind a term."""

from __future__ import annotations

from camelid.plan.plan import Op
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, row_grid, tiles
from camelid_native.cuda.kernels_matrix import TOKENS
from camelid_native.cuda.signature import Values

THREADS, WORD = 256, 4
TILE = {"PAIRS": 8, "RANKS": 4}  # for more than TOKENS rows of a matrix; else one of both
ALONE = {"PAIRS": 1, "RANKS": 1}


def _slots(op: Op) -> int:
    """Slots of experts of a row; 1 for a matrix."""
    return op.view("ids").cols if op.has("ids") else 1


def _macros(op: Op, c: Context) -> dict[str, int]:
    return TILE if c.rows(op, "y") > TOKENS and not op.has("ids") else ALONE


def _n_pairs(op: Op, c: Context) -> int:
    return c.rows(op, "y") * _slots(op)


def _values(op: Op, _: Context) -> Values:
    slots, n_in, is_stack = _slots(op), op.integer("n_in"), op.has("ids")
    is_deferred = not is_stack and op.integer("deferred")
    return {
        **({} if is_stack else {"ids": 0}),
        **{name: op.integer(name) for name in ("rank", "n_in")},
        "n_out": op.view("y").cols // slots,
        "experts": op.integer("experts") if is_stack else 1,
        "slots": slots,
        "vectors": max(op.view("x").cols // n_in, 1) if is_stack else 1,
        "norm_cols": n_in if is_deferred else 0,
        "eps": op.number("eps") if is_deferred else 0.0,
        "scale": 1.0 if is_stack else op.number("scale"),
    }


def _dots_grid(op: Op, c: Context) -> Grid:
    tile = _macros(op, c)
    return (tiles(op.integer("rank"), tile["RANKS"]), tiles(_n_pairs(op, c), tile["PAIRS"]), 1)


def _spread_grid(op: Op, c: Context) -> Grid:
    n_out = op.view("y").cols // _slots(op)
    return (tiles(n_out, THREADS), tiles(_n_pairs(op, c), _macros(op, c)["PAIRS"]), 1)


def _u_scratch(op: Op, c: Context) -> dict[str, int]:
    return {"u": WORD * _n_pairs(op, c) * op.integer("rank")}


DOTS = Kernel("low_rank", _dots_grid, _values, name="low_rank_dots", defines=_macros, scratch=_u_scratch)
SPREAD = Kernel("low_rank", _spread_grid, _values, name="low_rank_spread", defines=_macros)
DEFER = Kernel("defer_norm", row_grid("y"), lambda op, c: {"size": op.view("y").cols})

KERNELS: dict[str, OpKernels] = {
    "low_rank": OpKernels((DOTS, SPREAD), ("tensor", "rank", "n_in", "scale", "deferred", "eps")),
    "low_rank_experts": OpKernels((DOTS, SPREAD), ("tensor", "rank", "n_in", "experts")),
    "defer_norm": OpKernels((DEFER,)),
}

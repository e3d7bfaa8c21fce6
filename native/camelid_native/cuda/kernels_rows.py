"""Kernel rows of ops over the rows of a sequence in the step: recurrent ops, and those of encoders."""

from __future__ import annotations

from collections.abc import Callable

from camelid.plan.op_rows_recurrent import decay_cols
from camelid.plan.plan import Op, Plan
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, row_grid, tiles, width_grid
from camelid_native.cuda.kernels_basic import MAYBE_ACTS
from camelid_native.cuda.signature import Values

THREADS = 256
LANES = 32  # of a group
STATE_ROWS = THREADS // LANES  # of a state matrix in a block
MOST_WIDTH = 512  # columns of a state matrix
ROW_MASKS = {"full": 0, "causal": 1, "symmetric": 2}
POOLINGS = {"mean": 0, "cls": 1, "last": 2}
ENCODER_THREADS = 128
MOST_HEAD = 512  # columns of a head in attend_rows


def _conv_values(op: Op, _: Context) -> Values:
    return {"cols": op.view("x").cols, "taps": op.weight("weight").cols}


def _conv_state_grid(op: Op, c: Context) -> Grid:
    return (tiles(op.view("x").cols, THREADS), c.plan.key.capacity.sequences, 1)


def _scan(name: str, values_role: str, width_role: str, shared_by: str, *attrs: str) -> OpKernels:
    """A scan: the state matrix of a head has a row per column of `values_role`, and the columns of one of the
    `shared_by` groups of `width_role`.
    """

    def head_rows(op: Op) -> int:
        return op.view(values_role).cols // op.view("dt").cols

    def width(op: Op) -> int:
        return op.view(width_role).cols // op.integer(shared_by)

    def values(op: Op, _: Context) -> Values:
        each = op.view("dt").cols // op.integer(shared_by)
        numbers = {attr: op.number(attr) for attr in attrs}
        if name == "scan_mamba2":
            numbers["a_cols"] = decay_cols(op)
        return {"head_rows": head_rows(op), "width": width(op), "heads_each": each, **numbers}

    def grid(op: Op, c: Context) -> Grid:
        return (tiles(head_rows(op), STATE_ROWS), op.view("dt").cols, c.plan.key.capacity.sequences)

    def refusal(op: Op, _: Plan) -> str:
        n = width(op)
        return f"a state of {n} columns; at most {MOST_WIDTH}" if n > MOST_WIDTH else ""

    return OpKernels((Kernel("recurrent", grid, values, name=name),), (shared_by, *attrs), refuses=refusal)


def _shift_values(op: Op, _: Context) -> Values:
    return {"cols": op.view("x").cols, "mixed": op.weight("lerp").rows, "part": op.integer("part")}


def _wkv_width(op: Op, role: str) -> int:
    """Columns of a head of RWKV."""
    return op.view(role).cols // op.integer("n_heads")


def _wkv_grid(op: Op, c: Context) -> Grid:
    sequences = c.plan.key.capacity.sequences
    return (tiles(_wkv_width(op, "y"), STATE_ROWS), op.integer("n_heads"), sequences)


def _wkv6_values(op: Op, _: Context) -> Values:
    return {"width": _wkv_width(op, "y"), "heads_each": op.view("r").cols // op.view("k").cols}


def _bonus_values(op: Op, _: Context) -> Values:
    return {"width": _wkv_width(op, "x"), "heads": op.integer("n_heads")}


def _bonus_grid(op: Op, c: Context) -> Grid:
    return (tiles(op.integer("n_heads"), THREADS // LANES), c.rows(op, "x"), 1)


def _head_dims(op: Op) -> tuple[int, int]:
    """Columns of a head of q and of v."""
    return op.view("q").cols // op.integer("n_heads"), op.view("v").cols // op.integer("n_kv_heads")


def _attend_values(op: Op, _: Context) -> Values:
    n_heads, (q_dim, v_dim) = op.integer("n_heads"), _head_dims(op)
    reach = op.weight("bias").rows // 2 if op.has("bias") else 0
    sizes = {"q_dim": q_dim, "v_dim": v_dim, "bias_reach": reach, "window": op.integer("window")}
    heads = {"n_heads": n_heads, "heads_each": n_heads // op.integer("n_kv_heads")}
    return {**heads, **sizes, "scale": op.number("scale")}


def _attend_grid(op: Op, c: Context) -> Grid:
    return (op.integer("n_heads"), c.rows(op, "q"), 1)


def _attend_refusal(op: Op, _: Plan) -> str:
    n = max(_head_dims(op))
    return f"heads of {n} columns; at most {MOST_HEAD}" if n > MOST_HEAD else ""


def _cols(role: str) -> Callable[[Op, Context], Values]:
    return lambda op, c: {"cols": op.view(role).cols}


KERNELS: dict[str, OpKernels] = {
    "conv1d": OpKernels(
        (
            Kernel("recurrent", width_grid("x"), _conv_values, name="conv1d"),
            Kernel("recurrent", _conv_state_grid, _conv_values, name="conv_state"),
        ),
        (),
        {"act": MAYBE_ACTS},
    ),
    "scan_mamba2": _scan("scan_mamba2", "x", "b", "n_groups"),
    "scan_delta": _scan("scan_delta", "v", "k", "n_key_heads", "scale"),
    "token_shift": OpKernels(
        (Kernel("recurrent", width_grid("x"), _shift_values, name="token_shift"),), ("part",)
    ),
    "scan_rwkv6": OpKernels((Kernel("rwkv6", _wkv_grid, _wkv6_values, name="scan_rwkv6"),), ("n_heads",)),
    "scan_rwkv7": OpKernels(
        (Kernel("rwkv7", _wkv_grid, lambda op, c: {"width": _wkv_width(op, "y")}, name="scan_rwkv7"),),
        ("n_heads",),
    ),
    "bonus_rwkv7": OpKernels(
        (Kernel("rwkv7", _bonus_grid, _bonus_values, name="bonus_rwkv7"),), ("n_heads",)
    ),
    "attend_rows": OpKernels(
        (Kernel("encoder", _attend_grid, _attend_values, name="attend_rows"),),
        ("n_heads", "n_kv_heads", "scale", "window"),
        {"mask": ROW_MASKS},
        _attend_refusal,
    ),
    "pool": OpKernels(
        (Kernel("encoder", width_grid("y", ENCODER_THREADS), _cols("y"), name="pool"),),
        (),
        {"kind": POOLINGS},
    ),
    "emit": OpKernels((Kernel("encoder", row_grid("x"), _cols("x"), name="emit"),)),
}

"""Kernel rows of recurrent ops, whose state is one slot per sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.backends.webgpu.kernel import (
    LANES,
    Constants,
    Context,
    Grid,
    Kernel,
    Split,
    rows_of,
    tiles,
    width_grid,
)
from camelid.backends.webgpu.kernels_basic import ACTS
from camelid.plan.op_rows_recurrent import SLOT_TENSORS, decay_cols
from camelid.plan.plan import Op, Plan
from camelid.plan.step import StepLayout

SEQUENCES_WORD = StepLayout.header_word("sequences")
MOST_COLS = 16  # columns of a state row that one lane has; see scan.wgsl
# Roles of a scan's values, keys and queries, and the attribute with the number of groups of keys. The
# inputs of scan_rwkv6 have a key for each column of r.
SCANS: Mapping[str, tuple[str, str, str, str]] = {
    "scan_mamba2": ("x", "b", "c", "n_groups"),
    "scan_delta": ("v", "k", "q", "n_key_heads"),
    "scan_rwkv6": ("v", "r", "r", "n_heads"),
    "scan_rwkv7": ("v", "k", "r", "n_heads"),
}
# Vectors of a row of `inputs` in rwkv6_inputs.wgsl and rwkv7_inputs.wgsl.
WKV_INPUTS = {"scan_rwkv6": 4, "scan_rwkv7": 5}


def _slot_constants(op: Op, c: Context) -> Constants:
    """Constants of slots.wgsl."""
    spec = c.plan.state(op.state("state").group)
    return {"GROUP": c.plan.group(spec.name), "SLOT_FLOATS": dict(spec.tensors)[SLOT_TENSORS[op.name]]}


def _refuses_slots(op: Op, plan: Plan) -> str:
    spec, tensor = plan.state(op.state("state").group), SLOT_TENSORS[op.name]
    if spec.kind == "recurrent" and spec.kv_type == "f32" and tensor in dict(spec.tensors):
        return ""
    return (
        f"state {spec.name!r} of kind {spec.kind} and type {spec.kv_type}; recurrent slots of type f32 "
        f"with a tensor {tensor!r} are required"
    )


def _conv_constants(op: Op, c: Context) -> Constants:
    n_channels, n_taps = op.weight("weight").shape
    return {"C": n_channels, "HELD": n_taps - 1} | _slot_constants(op, c)


def _shift_constants(op: Op, c: Context) -> Constants:
    return {
        "C": op.view("x").cols,
        "MIXED": op.weight("lerp").rows,
        "PART": op.integer("part"),
    } | _slot_constants(op, c)


def _cols(op: Op) -> int:
    """Columns of a head's state matrix."""
    _, keys, _, groups = SCANS[op.name]
    return op.view(keys).cols // op.integer(groups)


def _row_lanes(op: Op) -> int:
    """Lanes that share a row of a state matrix: as few as have its columns, a power of two."""
    return 1 << (tiles(_cols(op), MOST_COLS) - 1).bit_length()


def _heads(op: Op) -> int:
    return op.integer("n_heads") if op.name in WKV_INPUTS else op.view("dt").cols


def _heads_per_key(op: Op) -> int:
    if op.name in WKV_INPUTS:
        return op.view("r").cols // op.view("k").cols
    return _heads(op) // op.integer(SCANS[op.name][3])


def _is_by_column(op: Op) -> bool:
    return op.name == "scan_mamba2" and decay_cols(op) > 1


def _refuses_scan(op: Op, plan: Plan) -> str:
    if _cols(op) > MOST_COLS * LANES:
        return f"states with rows of {_cols(op)} floats; at most {MOST_COLS * LANES} are supported"
    return _refuses_slots(op, plan)


def _input_floats(op: Op) -> int:
    """Floats of a row of `inputs` in scan_inputs.wgsl, rwkv6_inputs.wgsl and rwkv7_inputs.wgsl."""
    _, keys, _, _ = SCANS[op.name]
    if op.name in WKV_INPUTS:
        return WKV_INPUTS[op.name] * op.view(keys).cols
    return 2 * op.view(keys).cols + op.view("dt").cols * (1 if _is_by_column(op) else 2)


def _scan_constants(op: Op, c: Context) -> Constants:
    values, keys, queries, _ = SCANS[op.name]
    places: Constants = {}
    for name, role in (("X", values), ("KEYS", keys), ("QUERIES", queries)):
        places |= {f"{name}_STRIDE": op.view(role).stride, f"{name}_OFFSET": op.view(role).offset}
    return places | {
        "STATE_ROWS": op.view("y").cols,
        "COLS": _cols(op),
        "EACH": _row_lanes(op),
        "HEADS_PER_KEY": _heads_per_key(op),
        "KEY_FLOATS": op.view(keys).cols,
        "HEADS": _heads(op),
        "INPUT_FLOATS": _input_floats(op),
        "BY_COLUMN": int(_is_by_column(op)),
        "HAS_BETA": int(op.has("beta")),
        **({"SCALE": op.number("scale")} if op.name == "scan_delta" else {}),
        **_slot_constants(op, c),
    }


def _inputs_grid(op: Op, _: Context) -> Grid:
    return (tiles(_input_floats(op)), rows_of(op, "y"), 1)


def _head_grid(role: str) -> Callable[[Op, Context], Grid]:
    """A grid with one workgroup per head of RWKV in the view."""
    return lambda op, c: (op.integer("n_heads"), rows_of(op, role), 1)


def _scan_grid(op: Op, _: Context) -> Grid:
    return (tiles(op.view("y").cols, LANES // _row_lanes(op)), (SEQUENCES_WORD, 1), 1)


def _bonus_constants(op: Op, _: Context) -> Constants:
    return {"COLS": op.view("x").cols // op.integer("n_heads")}


def _input_bytes(op: Op, c: Context) -> int:
    return 4 * _input_floats(op) * c.plan.rows[op.view("y").rows]


# Keys, queries and values may be columns of one buffer: a kernel that reads only may bind it several times.
INPUTS = Kernel(
    ("fine_exp", "softplus", "scan_inputs"),
    ("scratch+", "b|k", "c|q", "dt", "beta?", "a", "dt_bias?"),
    _scan_constants, _inputs_grid, access="read",
)  # fmt: skip
RWKV6 = Kernel(
    ("fine_exp", "rwkv6_inputs"), ("scratch+", "r", "w", "k", "u?"),
    _scan_constants, width_grid("r"), access="read",
)  # fmt: skip
RWKV7 = Kernel(
    ("fine_exp", "reduce", "rwkv7_key", "rwkv7_inputs"), ("scratch+", "r", "w", "k", "a", "k_k", "k_a"),
    _scan_constants, _head_grid("y"), access="read",
)  # fmt: skip


def _scan(attrs: tuple[str, ...], operands: tuple[str, ...], inputs: Kernel, scan: Kernel) -> Kernel:
    """The row of a scan, which always runs as its two kernels."""
    return Kernel((), operands, _scan_constants, _scan_grid, attrs=attrs, access="read",
                  refuses=_refuses_scan, split=Split((inputs, scan), _input_bytes))  # fmt: skip


KERNELS: dict[str, Kernel] = {
    "conv1d": Kernel(("slots", "conv1d"), ("y", "x", "weight", "bias?", "state.conv+"), _conv_constants,
                     width_grid("y"), acts={**ACTS, "none": ("act_none",)}, refuses=_refuses_slots),
    "scan_mamba2": _scan(
        ("n_groups",), ("y", "x", "b", "c", "dt", "a", "d?", "dt_bias?", "state.scan+"),
        INPUTS,
        Kernel(("fine_exp", "slots", "scan", "scan_mamba2"),
               ("y", "x", "scratch", "state.scan+", "a", "d?"), _scan_constants, _scan_grid),
    ),
    "scan_delta": _scan(
        ("n_key_heads", "scale"), ("y", "q", "k", "v", "dt", "beta", "a", "dt_bias?", "state.scan+"),
        INPUTS,
        Kernel(("slots", "scan", "scan_sums", "scan_delta"), ("y", "v", "scratch", "state.scan+"),
               _scan_constants, _scan_grid),
    ),
    "token_shift": Kernel(("slots", "token_shift"), ("y", "x", "lerp", "state.shift+"), _shift_constants,
                          width_grid("x"), attrs=("part",), refuses=_refuses_slots),
    "scan_rwkv6": _scan(
        ("n_heads",), ("y", "r", "w", "k", "v", "u?", "state.scan+"),
        RWKV6,
        Kernel(("slots", "scan", "scan_sums", "scan_rwkv6"), ("y", "v", "scratch", "state.scan+"),
               _scan_constants, _scan_grid),
    ),
    "scan_rwkv7": _scan(
        ("n_heads",), ("y", "r", "w", "k", "v", "a", "k_k", "k_a", "state.scan+"),
        RWKV7,
        Kernel(("slots", "scan", "scan_sums", "scan_rwkv7"), ("y", "v", "scratch", "state.scan+"),
               _scan_constants, _scan_grid),
    ),
    "bonus_rwkv7": Kernel(("reduce", "rwkv7_key", "bonus_rwkv7"), ("x", "r", "k", "v", "a", "k_a", "r_k"),
                          _bonus_constants, _head_grid("x"), attrs=("n_heads",)),
}  # fmt: skip

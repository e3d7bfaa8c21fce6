"""Row-wise kernels on Metal: norms, rotations of heads, and rows of the KV cache as blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from camelid.formats.quants import row_bytes
from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.kv_rows import BLOCK
from camelid_native.mlx.metal.launch import LANES, Grid, Kernel, StepForm, Value, launch

MOST_THREADS = 256
KINDS = ("rms", "layer", "l2")

NORM = Kernel(header=("block",), body=("norm",), inputs=("x", "gain", "bias", "r", "count"))
ADD_NORM = replace(NORM, outputs=("y", "sums"))
NORM_ROPE = Kernel(
    header=("step", "turn"), body=("norm_rope",), inputs=("x", "step", "fine", "coarse", "q_gain", "k_gain")
)
BLOCKS = Kernel(header=("put", "put_{kv}"), body=("blocks",), inputs=("x", "count"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Heads of queries and keys in a row, and the rotation of their floats from `offset` on (op `rope`).

    `k_cols` and `v_cols` are the last columns of a row; those of the values are not turned. `fine` and
    `coarse` are the op's tables.
    """

    head_dim: int
    dim: int
    style: str
    fine: Array
    coarse: Array
    offset: int = 0
    k_cols: int = 0
    v_cols: int = 0


def norm(
    x: Array,
    *,
    eps: float,
    count: Array,
    count_at: int = 0,
    kind: str = "rms",
    size: int = 0,
    gain: Array | None = None,
    bias: Array | None = None,
) -> Array:  # [T, C] -> [T, C]
    """The op `norm`: each group of `size` columns (0: all)."""
    return _norm(NORM, x, x, gain, bias, count, size, kind, {"EPS": eps, "COUNT_AT": count_at})[0]


def add_norm(
    x: Array,
    r: Array,
    gain: Array,
    *,
    eps: float,
    count: Array,
    count_at: int = 0,
    scale: float = 1.0,
) -> tuple[Array, Array]:  # [T, C] twice -> y, x, each [T, C]
    """The op `add_norm`: x + scale * r, and its RMS norm y."""
    numbers: dict[str, Value] = {"EPS": eps, "COUNT_AT": count_at, "SCALE": scale}
    y, sums = _norm(ADD_NORM, x, r, gain, None, count, 0, "rms", numbers)
    return y, sums


def _norm(
    kernel: Kernel,
    x: Array,
    r: Array,
    gain: Array | None,
    bias: Array | None,
    count: Array,
    size: int,
    kind: str,
    numbers: Mapping[str, Value],
) -> list[Array]:
    n_rows, cols = x.shape
    width, has_r = size or cols, kernel is ADD_NORM
    constants: dict[str, Value] = {
        "SCALE": 0.0,
        **numbers,
        "KIND": KINDS.index(kind),
        "COLS": cols,
        "SIZE": width,
        "THREADS": min(MOST_THREADS, -(-width // LANES) * LANES),
        "HAS_GAIN": gain is not None,
        "GAIN_STEP": 0 if gain is None or gain.size == width else width,
        "HAS_BIAS": bias is not None,
        "HAS_R": has_r,
        "KEPT": "sums" if has_r else "y",
    }
    arrays = {"x": x, "r": r, "count": count}
    arrays |= {"gain": x if gain is None else gain, "bias": x if bias is None else bias}
    grid = Grid(groups=(cols // width, n_rows, 1), simdgroups=int(constants["THREADS"]) // LANES)
    shapes, dtypes = [(n_rows, cols)] * (1 + has_r), [mx.float32] * (1 + has_r)
    return launch(kernel, arrays, constants=constants, grid=grid, shapes=shapes, dtypes=dtypes)


def norm_rope(
    x: Array,
    step: Array,
    form: StepForm,
    turn: Turn,
    *,
    eps: float = 0.0,
    q_gain: Array | None = None,
    k_gain: Array | None = None,
) -> Array:  # [T, heads * head_dim + v_cols] -> the same
    """The op `norm_rope`; without gains, rotations alone."""
    n_rows, cols = x.shape
    is_neox = turn.style == "neox"
    constants: dict[str, Value] = {
        "ROW_WORDS": form.row_words,
        "SEQUENCE_WORDS": form.sequence_words,
        "COLS": cols,
        "TURNED": cols - turn.v_cols,
        "K_COLS": turn.k_cols,
        "HEAD_DIM": turn.head_dim,
        "PAIRS": turn.dim // 2,
        "OFFSET": turn.offset,
        "NEXT": turn.dim // 2 if is_neox else 1,
        "PITCH": 1 if is_neox else 2,
        "FINE_ROWS": turn.fine.shape[0],
        "IS_NORMED": q_gain is not None,
        "EPS": float(eps),
    }
    gains = {"q_gain": x if q_gain is None else q_gain, "k_gain": x if k_gain is None else k_gain}
    arrays = {"x": x, "step": step, "fine": turn.fine, "coarse": turn.coarse, **gains}
    grid = Grid(groups=(-(-cols // turn.head_dim), n_rows, 1))
    return launch(NORM_ROPE, arrays, constants=constants, grid=grid, shapes=[(n_rows, cols)])[0]


def blocks(
    x: Array, kv_type: str, *, count: Array, count_at: int = 0
) -> Array:  # f32 [T, cols] -> u8 [T, bytes]
    """Rows of keys or values as q8_0 or q4_0, to be put into pages."""
    n_rows, cols = x.shape
    constants: dict[str, Value] = {"COLS": cols, "COUNT_AT": count_at}
    grid, shapes = Grid(groups=(cols // BLOCK, n_rows, 1)), [(n_rows, row_bytes(kv_type, cols))]
    how: dict[str, Any] = {"dtypes": (mx.uint8,), "files": {"kv": kv_type}}
    arrays = {"x": x, "count": count}
    return launch(BLOCKS, arrays, constants=constants, grid=grid, shapes=shapes, **how)[0]

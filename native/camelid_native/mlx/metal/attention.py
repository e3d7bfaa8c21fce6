"""Attention on Metal over the pages of the KV cache, read in place (`metal/attend.metal`).

For few rows a threadgroup has a split of a row's keys, and a second kernel joins the splits; for many rows a
threadgroup has all splits of several rows, and loads keys and values once for those of one sequence. Both
have one order of sums, so a row has the same bits in either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from camelid.formats.quants import quant
from camelid.plan.tiers import BATCH, TAIL
from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.metal.launch import LANES, Grid, Kernel, StepForm, Value, launch

SPLIT, THREADS, TILE = 256, 128, 32  # keys of a split; threads of a threadgroup; keys of a tile
MOST_SPLIT_ROWS = 8  # rows of a step whose splits have threadgroups of their own
MOST_HEADS, MOST_QUERIES = 8, 16  # query heads of a threadgroup: of one row, and of all its rows
MEMORY = 24 << 10  # bytes of threadgroup memory, of 32 KiB
STORED = {"f32": "float", "f16": "half", "q8_0": "uchar", "q4_0": "uchar"}

_HEADER = ("step", "math", "softmax", "kv_plain", "{kv}", "attend")
_POOLS = ("keys", "values", "tables", "tail_keys", "tail_values", "tail_tables")
_INPUTS = ("q_rows", "step", *_POOLS, "bias")
PART = Kernel(
    header=_HEADER, body=("attention_place", "attention_part"), inputs=_INPUTS, outputs=("y", "softmaxes")
)
ROWS = Kernel(header=_HEADER, body=("attention_place", "attention_rows"), inputs=(*_INPUTS, "sinks"))
JOIN = Kernel(header=_HEADER, body=("attention_join",), inputs=("step", "parts", "softmaxes", "sinks"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """One layer of a paged state group, with the group's index in the step.

    `keys` and `values` are [units * page_rows, cols]: float32, float16, or uint8 with the bytes of a row's
    blocks. Without `values` they are the first columns of the keys. `tables` is u32 [sequences, pages].
    """

    kv_type: str
    group: int
    keys: Array
    values: Array | None
    tables: Array
    page_rows: int

    def cols(self, array: Array) -> int:
        """Values of a row."""
        form = quant(self.kv_type)
        is_blocks = self.kv_type not in ("f32", "f16")
        return array.shape[-1] // form.block_bytes * form.block if is_blocks else array.shape[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Attributes of the op `attention`."""

    n_heads: int
    n_kv_heads: int
    v_dim: int
    scale: float
    is_held: bool = False
    is_chunked: bool = False
    window: int = 0
    softcap: float = 0.0


def fits(head_dim: int) -> bool:
    """True if the kernels read whole units of a head's columns."""
    return head_dim % 4 == 0


def attention(
    q: Array,
    pools: Pools,
    step: Array,
    form: StepForm,
    heads: Heads,
    *,
    tail: Pools | None = None,
    sinks: Array | None = None,
    bias: Array | None = None,
) -> Array:  # q f32 [T, H*D], step u32 [words] -> y [T, H*V]
    """The op `attention` (`plan/op_rows_state.py`) for all rows of a step; rows beyond its count become 0."""
    n_rows, (own, together) = q.shape[0], _at_once(q, heads)
    constants = _constants(q, pools, form, heads, tail, bias) | {"HAS_SINKS": sinks is not None}
    constants |= _row_constants(n_rows, own, together, heads.v_dim)
    arrays = _arrays(pools, tail or pools) | {"q_rows": q, "step": step}
    arrays |= {"bias": q if bias is None else bias, "sinks": q if sinks is None else sinks}
    files = {"kv": f"kv_{pools.kv_type}" if pools.keys.dtype == mx.uint8 else "kv_plain"}
    how: dict[str, Any] = {"constants": constants, "files": files}
    groups, shape = heads.n_heads // own, (n_rows, heads.n_heads * heads.v_dim)
    if n_rows > MOST_SPLIT_ROWS:
        grid = Grid(groups=(1, groups, -(-n_rows // together)), simdgroups=THREADS // LANES)
        return launch(ROWS, arrays, grid=grid, shapes=[shape], **how)[0]
    splits = int(constants["SPLITS"])
    parts = (n_rows, heads.n_heads, splits)
    grid = Grid(groups=(splits, groups, n_rows), simdgroups=THREADS // LANES)
    shapes, dtypes = [(*parts, heads.v_dim), (*parts, 2)], (mx.float32, mx.float32)
    arrays["parts"], arrays["softmaxes"] = launch(
        PART, arrays, grid=grid, shapes=shapes, dtypes=dtypes, **how
    )
    grid = Grid(groups=(-(-shape[1] // LANES), n_rows, 1))
    return launch(JOIN, arrays, grid=grid, shapes=[shape], **how)[0]


def _at_once(q: Array, heads: Heads) -> tuple[int, int]:
    """Query heads of a threadgroup that share keys, and rows of many: as many as its memory has room for."""
    head_dim, sharing = q.shape[1] // heads.n_heads, heads.n_heads // heads.n_kv_heads
    shares = max(THREADS // heads.v_dim, 1)
    most = max(MEMORY // (4 * (head_dim + shares * heads.v_dim + TILE)), 1)
    own = max(n for n in range(1, sharing + 1) if sharing % n == 0 and n <= min(MOST_HEADS, most))
    return own, max(min(MOST_QUERIES, most) // own, 1)


def _row_constants(n_rows: int, own: int, together: int, v_dim: int) -> dict[str, Value]:
    """Rows of a threadgroup, and their values of a thread."""
    at_once = together if n_rows > MOST_SPLIT_ROWS else 1
    row_values = -(-own * at_once * v_dim // THREADS)
    return {"AT_ONCE": at_once, "ROW_VALUES": row_values, "T_ROWS": n_rows, "HEADS": own}


def _constants(
    q: Array,
    pools: Pools,
    form: StepForm,
    heads: Heads,
    tail: Pools | None,
    bias: Array | None,
) -> dict[str, Value]:
    values = pools.keys if pools.values is None else pools.values
    context = pools.tables.shape[1] * pools.page_rows
    return {
        "KV": STORED[pools.kv_type],
        "ROW_WORDS": form.row_words,
        "SEQUENCE_WORDS": form.sequence_words,
        "N_HEADS": heads.n_heads,
        "N_KV_HEADS": heads.n_kv_heads,
        "HEAD_DIM": q.shape[1] // heads.n_heads,
        "V_DIM": heads.v_dim,
        "V_HEAD": pools.cols(values) // heads.n_kv_heads,
        "SPLIT": SPLIT,
        "SPLITS": -(-context // SPLIT),
        "PAGE": pools.page_rows,
        "GROUP": pools.group,
        "TABLE_COLS": pools.tables.shape[1],
        "KEY_STRIDE": pools.keys.shape[-1],
        "VALUE_STRIDE": values.shape[-1],
        "SCALE": float(heads.scale),
        "SOFTCAP": float(heads.softcap),
        "WINDOW": heads.window,
        "IS_HELD": heads.is_held,
        "IS_CHUNKED": heads.is_chunked,
        "HAS_BIAS": bias is not None,
        "BIAS_ROWS": 1 if bias is None else bias.shape[0],
        **_tail_constants(tail, pools.group),
    }


def _tail_constants(tail: Pools | None, group: int) -> dict[str, Value]:
    numbers: dict[str, Value] = {"HAS_TAIL": tail is not None, "TAIL_ROWS": TAIL, "TAIL_BATCH": BATCH}
    if tail is None:
        return numbers | {"TAIL_GROUP": group} | dict.fromkeys(_TAIL_SIZES, 0)
    values = tail.keys if tail.values is None else tail.values
    sizes = (tail.tables.shape[1], tail.keys.shape[-1], values.shape[-1])
    return numbers | {"TAIL_GROUP": tail.group} | dict(zip(_TAIL_SIZES, sizes, strict=True))


_TAIL_SIZES = ("TAIL_COLS", "TAIL_KEY_STRIDE", "TAIL_VALUE_STRIDE")


def _arrays(pools: Pools, tail: Pools) -> dict[str, Array]:
    """Pools and tables by input; a kernel without a tail does not read it, but its type is always f16."""
    none = mx.zeros(LANES, mx.float16)
    recent = [tail.keys, tail.keys if tail.values is None else tail.values]
    return {
        "keys": pools.keys,
        "values": pools.keys if pools.values is None else pools.values,
        "tables": pools.tables,
        "tail_keys": recent[0] if tail is not pools else none,
        "tail_values": recent[1] if tail is not pools else none,
        "tail_tables": tail.tables,
    }

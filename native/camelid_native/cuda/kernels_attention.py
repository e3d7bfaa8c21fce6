"""Kernel rows of attention over the KV cache."""

from __future__ import annotations

from camelid.plan.plan import Op, Plan
from camelid.plan.tiers import BATCH, TAIL
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles
from camelid_native.cuda.kernels_state import kv_header, refuses_type, spec_of
from camelid_native.cuda.signature import Values

THREADS = 256
MOST_SHARED_HEADS = 8  # query heads of a block
MOST_QUERY = 8 * 576  # floats of their queries, in shared memory
MOST_HEAD_DIM, WIDE_HEAD = 1024, 128
SPLIT_KEYS, MOST_SPLITS = 128, 64  # keys of a split, at least; splits of a row, at most
FEW_ROWS, MOST_PART_BYTES = 32, 64 << 20  # of a program whose splits have blocks of their own
SPLIT_BLOCKS = 1024  # of its launch: enough for a GPU; more would be empty for short sequences
QUERIES = 32  # rows times heads of a block of attention_rows.cu
MASKS = {"causal": 0, "held": 1, "chunked": 2}


def _head_dims(op: Op) -> tuple[int, int]:
    n_heads = op.integer("n_heads")
    return op.view("q").cols // n_heads, op.view("y").cols // n_heads


def _unit(op: Op, plan: Plan) -> int:
    """Values that a thread reads at once: 8 where all heads begin at multiples of 8, else 2."""
    v_head = spec_of(op, plan).tensors[-1][1] // op.integer("n_kv_heads")
    return 2 if any(dim % 8 for dim in (*_head_dims(op), v_head)) else 8


def _shared_heads(op: Op) -> int:
    """Query heads of a block: the most that divide a KV head's, within the limits. No bits depend on it."""
    n, most = op.integer("n_heads") // op.integer("n_kv_heads"), MOST_QUERY // _head_dims(op)[0]
    return max(i for i in range(1, min(n, most, MOST_SHARED_HEADS) + 1) if n % i == 0)


def _defines(op: Op, c: Context) -> dict[str, int]:
    head_dim, v_dim = _head_dims(op)
    return {
        "HEADS": _shared_heads(op),
        "HEAD_DIM": head_dim,
        "V_DIM": v_dim,
        "UNIT": _unit(op, c.plan),
        "TAIL_ROWS": TAIL if op.has("tail") else 0,
        "TAIL_BATCH": BATCH,
    }


def _rows_defines(op: Op, c: Context) -> dict[str, int]:
    """Macros of tiles; a compiler that seeks more blocks also spills registers for q4_0 on sm_100."""
    has_codes = spec_of(op, c.plan).kv_type == "q4_0"
    return {**_defines(op, c), "LEAST_BLOCKS": int(_spills(op, c) or has_codes)}


def _spills(op: Op, c: Context) -> bool:
    """True where a compiler that seeks more blocks of a multiprocessor spills registers."""
    is_wide = max(_head_dims(op)) > WIDE_HEAD or spec_of(op, c.plan).kv_type == "f32"
    return is_wide or op.has("tail")


def _split_defines(op: Op, c: Context) -> dict[str, int]:
    """Macros of splits, whose sums fill fewer registers: two blocks of up to four heads fit, or three.
    Float32 in four heads of 256 spills on sm_100 with two, so it has one.
    """
    n_heads, width = _shared_heads(op), _head_dims(op)[0]
    is_widest = n_heads * width > 512 and spec_of(op, c.plan).kv_type == "f32"
    if _spills(op, c):
        n_blocks = 2 if n_heads <= 4 and not is_widest else 1
    else:
        n_blocks = 3 if n_heads == 4 and width >= 128 else 0
    return {**_defines(op, c), "LEAST_BLOCKS": n_blocks}


def _context(op: Op, c: Context) -> int:
    spec = spec_of(op, c.plan)
    return c.pools[spec.name].table_cols * spec.unit_rows


def _split_keys(op: Op, c: Context) -> int:
    """Keys of a split: the same in every program of a deployment."""
    return SPLIT_KEYS * tiles(_context(op, c), SPLIT_KEYS * MOST_SPLITS)


def _n_splits(op: Op, c: Context) -> int:
    return tiles(_context(op, c), _split_keys(op, c))


def _values(op: Op, c: Context) -> Values:
    return {
        "n_heads": op.integer("n_heads"),
        "n_kv_heads": op.integer("n_kv_heads"),
        "bias_rows": op.weight("bias").rows if op.has("bias") else 0,
        "window": op.integer("window"),
        "split": _split_keys(op, c),
        "n_splits": _n_splits(op, c),
        "scale": op.number("scale"),
        "softcap": op.number("softcap"),
    }


def _part_bytes(op: Op, c: Context) -> int:
    """Bytes of the sums of all splits: values, highest score and sum of weights."""
    floats = c.rows(op, "q") * op.integer("n_heads") * _n_splits(op, c) * (_head_dims(op)[1] + 2)
    return 4 * floats


def _is_split(op: Op, c: Context) -> bool:
    """True for few rows, whose heads alone do not fill a GPU."""
    return c.rows(op, "q") <= FEW_ROWS and _n_splits(op, c) > 1 and _part_bytes(op, c) <= MOST_PART_BYTES


def _is_whole(op: Op, c: Context) -> bool:
    return not _is_split(op, c)


def _block_grid(op: Op, c: Context) -> Grid:
    return (op.integer("n_heads") // _shared_heads(op), c.rows(op, "q"), 1)


def _n_tiles(op: Op, c: Context) -> int:
    return tiles(c.rows(op, "q"), QUERIES // _shared_heads(op))


def _rows_grid(op: Op, c: Context) -> Grid:
    """Blocks of heads; of the first rows of each sequence, then of tiles of rows."""
    return (op.integer("n_heads") // _shared_heads(op), c.plan.key.capacity.sequences + _n_tiles(op, c), 1)


def _rows_values(op: Op, c: Context) -> Values:
    return {**_values(op, c), "n_sequences": c.plan.key.capacity.sequences, "n_tiles": _n_tiles(op, c)}


def _split_grid(op: Op, c: Context) -> Grid:
    """Blocks of heads, rows, and blocks that share the splits of a row."""
    heads, rows, _ = _block_grid(op, c)
    return (heads, rows, min(_n_splits(op, c), tiles(SPLIT_BLOCKS, heads * rows)))


def _split_values(op: Op, c: Context) -> Values:
    return {**_values(op, c), "n_shares": _split_grid(op, c)[2]}


def _join_grid(op: Op, c: Context) -> Grid:
    return (op.integer("n_heads"), c.rows(op, "q"), 1)


def _part_scratch(op: Op, c: Context) -> dict[str, int]:
    return {"sums": _part_bytes(op, c)}


def _refuses(op: Op, plan: Plan) -> str:
    dims = (*_head_dims(op), spec_of(op, plan).tensors[-1][1] // op.integer("n_kv_heads"))
    odd, most = [dim for dim in dims if dim % 2], min(MOST_HEAD_DIM, THREADS * min(_unit(op, plan), 4))
    if odd:
        return f"heads of {odd[0]} floats; a multiple of 2 is required"
    if dims[0] > MOST_HEAD_DIM or dims[1] > most:
        return f"heads of {dims[0]} and {dims[1]} floats; at most {MOST_HEAD_DIM} and {most} are supported"
    return refuses_type(op, plan) or (_refuses_tail(op, plan) if op.has("tail") else "")


def _refuses_tail(op: Op, plan: Plan) -> str:
    store, tail = spec_of(op, plan), spec_of(op, plan, "tail")
    if (tail.kv_type, tail.tensors) == ("f16", store.tensors):
        return ""
    return f"a tail {tail.name!r} of type {tail.kv_type}; f16 with the tensors of {store.name!r} is required"


KERNELS: dict[str, OpKernels] = {
    "attention": OpKernels(
        (
            Kernel("attention_rows", _rows_grid, _rows_values, headers=kv_header, defines=_rows_defines,
                   when=_is_whole),
            Kernel("attention", _split_grid, _split_values, name="attention_split", headers=kv_header,
                   defines=_split_defines, scratch=_part_scratch, when=_is_split),
            Kernel("attention", _join_grid, _values, name="attention_join", headers=kv_header,
                   defines=_split_defines, when=_is_split),
        ),
        ("n_heads", "n_kv_heads", "scale", "window", "softcap"),
        {"mask": MASKS},
        _refuses,
    ),
}  # fmt: skip

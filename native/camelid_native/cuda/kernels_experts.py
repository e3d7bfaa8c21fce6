"""Kernel rows of mixtures of experts.

Up to `TOKENS` rows, a block of a product has one pair of a row and a slot. For more, pairs are sorted by
expert, and a block has a tile of them: an expert's weights are read once per tile.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.plan.plan import Op
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles, width_grid
from camelid_native.cuda.kernels_basic import GATES
from camelid_native.cuda.kernels_matrix import (
    GEMM_ROWS,
    GEMM_TOKENS,
    MANY,
    ROWS,
    TILE_ROWS,
    TOKENS,
    codec,
    gemm_macros,
    is_gemm,
    is_half,
    product_values,
    quantize,
)
from camelid_native.cuda.signature import Values
from camelid_native.cuda.types import BLOCK, EXACT_TYPES, FACTOR_BYTES

MOST_EXPERTS, SORT_THREADS = 1024, 128  # as in tiles.cu
TILE_BYTES, WORD = 16, 4
SUM_ROWS = 4  # outputs of a block of experts_sum.cu
SORTED = ("order", "tiles", "sorted", "sorted_codes", "sorted_factors")


def parts_of(op: Op) -> tuple[int, int]:
    """Vectors of a row of x, and the floats from one to the next."""
    n_in = op.weight("weight").cols
    return op.view("x").cols // n_in, n_in


def is_sorted(op: Op, c: Context) -> bool:
    return c.rows(op, "y") > TOKENS and op.weight("weight").shape[0] <= MOST_EXPERTS


def n_pairs(op: Op, c: Context) -> int:
    return c.rows(op, "y") * op.view("ids").cols


def block_rows(op: Op, c: Context) -> int:
    """Outputs of a block."""
    rows = TILE_ROWS if op.name == "linear_experts_glu" else ROWS
    return GEMM_ROWS if is_sorted(op, c) and is_gemm(op, c) else rows


def tile_pairs(op: Op, c: Context) -> int:
    """Pairs of a tile: with matrix instructions the least power of two that is at least twice an expert's
    mean share, so that most experts have one tile.
    """
    sizes = (8, 16, 32, MANY // block_rows(op, c)) if is_half(op, c) else GEMM_TOKENS
    if not (is_half(op, c) or is_gemm(op, c)):
        return TOKENS
    mean = n_pairs(op, c) / op.weight("weight").shape[0]
    return min(sizes[-1], next((n for n in sizes if n >= 2 * mean), sizes[-1]))


def most_tiles(op: Op, c: Context) -> int:
    """The most tiles of any choice: one for each expert, the other pairs in full tiles."""
    pairs = n_pairs(op, c)
    alone = min(pairs, op.weight("weight").shape[0])
    return alone + (pairs - alone) // tile_pairs(op, c)


def macros(op: Op, c: Context) -> dict[str, int]:
    """The most pairs of a block: of a tile, of a matrix instruction for a pair alone, or one."""
    if not is_sorted(op, c):
        return {"MANY": TOKENS} if is_half(op, c) else {"TOKENS": 1}
    n = {"SORTED": 1}
    if is_gemm(op, c):
        return {**n, **gemm_macros(tile_pairs(op, c))}
    return {**n, "MANY" if is_half(op, c) else "TOKENS": tile_pairs(op, c)}


def _is_rounded(op: Op) -> bool:
    return op.weight("weight").type not in EXACT_TYPES


def _sort_values(op: Op, c: Context) -> Values:
    sizes = {"tile_rows": tile_pairs(op, c), "most_tiles": most_tiles(op, c)}
    return {"n_experts": op.weight("weight").shape[0], "slots": op.view("ids").cols, **sizes}


def _sort_scratch(op: Op, c: Context) -> dict[str, int]:
    return {"order": WORD * n_pairs(op, c), "tiles": TILE_BYTES * most_tiles(op, c)}


def _x_values(op: Op, _: Context) -> Values:
    return {"cols": op.weight("weight").cols, "slots": op.view("ids").cols, "parts": parts_of(op)[0]}


def _codes_scratch(op: Op, c: Context) -> dict[str, int]:
    n = n_pairs(op, c) * op.weight("weight").cols
    return {"sorted_codes": n, "sorted_factors": FACTOR_BYTES * n // BLOCK}


def _floats_scratch(op: Op, c: Context) -> dict[str, int]:
    return {"sorted": WORD * n_pairs(op, c) * op.weight("weight").cols}


def _codes_grid(op: Op, c: Context) -> Grid:
    return (n_pairs(op, c), tiles(op.weight("weight").cols, 16 * SORT_THREADS), 1)


def _floats_grid(op: Op, c: Context) -> Grid:
    return (n_pairs(op, c), tiles(op.weight("weight").cols, SORT_THREADS), 1)


def _values(op: Op, c: Context) -> Values:
    known = {"order", "tiles", *({"sorted_codes", "sorted_factors"} if _is_rounded(op) else {"sorted"})}
    absent = set(SORTED).difference(known if is_sorted(op, c) else ())
    return {**product_values(op, c, parts_of), "slots": op.view("ids").cols, **dict.fromkeys(absent, 0)}


def _linear_values(op: Op, c: Context) -> Values:
    return {**_values(op, c), "outputs_at": 0}


def _grid(op: Op, c: Context) -> Grid:
    places = most_tiles(op, c) if is_sorted(op, c) else n_pairs(op, c)
    return (places, tiles(op.weight("weight").shape[1], block_rows(op, c)), 1)


def _sum_grid(op: Op, c: Context) -> Grid:
    return (tiles(op.view("y").cols, SUM_ROWS), c.rows(op, "y"), 1)


def _outputs_scratch(op: Op, c: Context) -> dict[str, int]:
    return {"outputs_at": WORD * n_pairs(op, c) * op.view("y").cols} if _is_apart(op, c) else {}


def _outputs_values(op: Op, _: Context) -> Values:
    return {"cols": op.view("y").cols, "slots": op.view("ids").cols}


def _is_apart(op: Op, c: Context) -> bool:
    """True if a launch of its own adds the slots."""
    return is_sorted(op, c) or is_half(op, c)


SORT = (
    Kernel("tiles", lambda op, c: (op.weight("weight").shape[0], 1, 1), _sort_values, name="sort_pairs",
           scratch=_sort_scratch, when=is_sorted),
    Kernel("tiles", _codes_grid, _x_values, name="sort_codes", scratch=_codes_scratch,
           when=lambda op, c: is_sorted(op, c) and _is_rounded(op)),
    Kernel("tiles", _floats_grid, _x_values, name="sort_floats", scratch=_floats_scratch,
           when=lambda op, c: is_sorted(op, c) and not _is_rounded(op)),
)  # fmt: skip
LINEAR = Kernel("experts", _grid, _linear_values, name="linear_experts", headers=codec, defines=macros)
GLU = replace(LINEAR, file="experts_glu", name="linear_experts_glu", values=_values)
OUTPUTS = replace(LINEAR, values=_values, scratch=_outputs_scratch, when=_is_apart)
SUM = Kernel(
    "experts_sum",
    _sum_grid,
    _values,
    name="linear_experts_sum",
    headers=codec,
    when=lambda op, c: not _is_apart(op, c),
)
SUM_OUTPUTS = Kernel(
    "experts_sum", width_grid("y"), _outputs_values, name="sum_outputs", headers=codec, when=_is_apart
)

ROUND = quantize(parts_of)
KERNELS: dict[str, OpKernels] = {
    "linear_experts": OpKernels((ROUND, *SORT, LINEAR)),
    "linear_experts_glu": OpKernels((ROUND, *SORT, GLU), words={"act": GATES}),
    "linear_experts_sum": OpKernels((ROUND, *SORT, OUTPUTS, SUM, SUM_OUTPUTS)),
}

"""Kernel rows of mixtures of experts.

Up to `TOKENS` rows, a block of a product has one pair of a row and a slot. For more, pairs are sorted by
expert, and a block has a tile of them: an expert's weights are read once per tile.
"""

from __future__ import annotations

from camelid.plan.plan import Op
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles
from camelid_native.cuda.kernels_matrix import ROWS, TOKENS, codec, product_values, quantize, tokens_macro
from camelid_native.cuda.signature import Values
from camelid_native.cuda.types import BLOCK, EXACT_TYPES, FACTOR_BYTES

MOST_EXPERTS, SORT_THREADS = 1024, 128  # as in tiles.cu
MOST_TILE = 64  # pairs of a tile by matrix instructions
TILE_BYTES, WORD = 16, 4
SORTED = ("order", "tiles", "sorted", "sorted_codes", "sorted_factors")


def parts_of(op: Op) -> tuple[int, int]:
    """Vectors of a row of x, and the floats from one to the next."""
    n_in = op.weight("weight").cols
    return op.view("x").cols // n_in, n_in


def is_sorted(op: Op, c: Context) -> bool:
    return c.rows(op, "y") > TOKENS and op.weight("weight").shape[0] <= MOST_EXPERTS


def n_pairs(op: Op, c: Context) -> int:
    return c.rows(op, "y") * op.view("ids").cols


def tile_pairs(op: Op, c: Context) -> int:
    """Pairs of a tile: with matrix instructions the least of 8, 16, 32 and 64 that is at least twice an
    expert's mean share, so that most experts have one tile.
    """
    if "MANY" not in tokens_macro(op, c):
        return TOKENS
    mean = n_pairs(op, c) / op.weight("weight").shape[0]
    return next((n for n in (8, 16, 32) if n >= 2 * mean), MOST_TILE)


def most_tiles(op: Op, c: Context) -> int:
    """The most tiles of any choice: one for each expert, the other pairs in full tiles."""
    pairs = n_pairs(op, c)
    alone = min(pairs, op.weight("weight").shape[0])
    return alone + (pairs - alone) // tile_pairs(op, c)


def tile_macro(op: Op, c: Context) -> dict[str, int]:
    if not is_sorted(op, c):
        return {"TOKENS": 1}
    return {"MANY" if "MANY" in tokens_macro(op, c) else "TOKENS": tile_pairs(op, c)}


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


def _grid(op: Op, c: Context) -> Grid:
    places = most_tiles(op, c) if is_sorted(op, c) else n_pairs(op, c)
    return (places, tiles(op.weight("weight").shape[1], ROWS), 1)


SORT = (
    Kernel("tiles", lambda op, c: (op.weight("weight").shape[0], 1, 1), _sort_values, name="sort_pairs",
           scratch=_sort_scratch, when=is_sorted),
    Kernel("tiles", _codes_grid, _x_values, name="sort_codes", scratch=_codes_scratch,
           when=lambda op, c: is_sorted(op, c) and _is_rounded(op)),
    Kernel("tiles", _floats_grid, _x_values, name="sort_floats", scratch=_floats_scratch,
           when=lambda op, c: is_sorted(op, c) and not _is_rounded(op)),
)  # fmt: skip
LINEAR = Kernel("experts", _grid, _values, name="linear_experts", headers=codec, defines=tile_macro)

KERNELS: dict[str, OpKernels] = {"linear_experts": OpKernels((quantize(parts_of), *SORT, LINEAR))}

"""Kernel rows of ops with weight matrices: embeddings, linear maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from camelid.plan.plan import Op, Plan
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, row_grid, tiles
from camelid_native.cuda.kernels_basic import GATES
from camelid_native.cuda.signature import Values
from camelid_native.cuda.types import BLOCK, EXACT_TYPES, FACTOR_BYTES, HALF_TYPES

ROWS, TILE_ROWS = 16, 32  # outputs per block of a product's kernel; where it rounds them, a block of columns
TOKENS, MANY = 8, 1024  # the most rows of x of a block; its outputs with float matrix instructions
GEMM_ROWS, GEMM_THREADS = 64, 512  # with integer matrix instructions: outputs and threads of a block
GEMM_TOKENS = (16, 32, 64)  # and its rows of x
PASS_THREADS, EMBED_THREADS, QUANTIZE_COLS = 128, 64, 4 * 256

DEFERRED = frozenset({"norm_linear", "norm_linear_glu", "norm_qkv"})  # products of a deferred norm
NO_NORM: Values = {"norm_cols": 0, "eps": 0.0}

Parts = Callable[[Op], tuple[int, int]]  # vectors of a row of x, and the floats from one to the next


def one(_: Op) -> tuple[int, int]:
    return 1, 0


def _heads(op: Op) -> tuple[int, int]:
    n_heads = op.weight("weight").shape[0]
    return n_heads, op.view("x").cols // n_heads


def _is_rounded(op: Op, _: Context) -> bool:
    return op.weight("weight").type not in EXACT_TYPES


def codec(op: Op, _: Context) -> tuple[str, ...]:
    """The headers of the weight's type, and of products with it."""
    kind = op.weight("weight").type
    return (f"codec_{kind}", "floats" if kind in EXACT_TYPES else "codes")


def is_half(op: Op, c: Context) -> bool:
    """True for matrix instructions whose sums round: for any number of rows, so that bits are equal."""
    return c.has_half_matrix and op.weight("weight").type in HALF_TYPES


def is_gemm(op: Op, c: Context) -> bool:
    """True for matrix instructions whose sums are exact: for more than TOKENS rows of rounded x."""
    return c.has_matrix and _is_rounded(op, c) and c.rows(op, "y") > TOKENS


def _power_of_two(n: int) -> int:
    """The least power of two of at least n."""
    return 1 << (n - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Block:
    """Outputs of a product's block, its rows of x, and the macros that say so."""

    rows: int
    tokens: int
    macros: Mapping[str, int]

    def grid(self, n_out: int, n_rows: int, n_parts: int = 1) -> Grid:
        return (tiles(n_out, self.rows), tiles(n_rows, self.tokens), n_parts)


def gemm_macros(tokens: int) -> dict[str, int]:
    """Macros of gemm.h for so many rows of x. A compiler that seeks a second block spills more registers."""
    return {"GEMM": tokens, "THREADS": GEMM_THREADS, "LEAST_BLOCKS": 1}


def block_of(op: Op, c: Context, rows: int = ROWS) -> Block:
    """The block of a product with `rows` outputs, or more with integer matrix instructions."""
    n = c.rows(op, "y")
    if is_half(op, c):
        tokens = MANY // rows if n > TOKENS else TOKENS
        return Block(rows, tokens, {"MANY": tokens})
    if is_gemm(op, c):
        tokens = max(GEMM_TOKENS[0], min(GEMM_TOKENS[-1], _power_of_two(n)))
        return Block(GEMM_ROWS, tokens, gemm_macros(tokens))
    tokens = min(TOKENS, _power_of_two(n))
    return Block(rows, tokens, {"TOKENS": tokens})


def quantize(parts: Parts) -> Kernel:
    """The launch that rounds x, whose result the product reads."""

    def grid(op: Op, c: Context) -> Grid:
        return (tiles(op.weight("weight").cols, QUANTIZE_COLS), c.rows(op, "x"), parts(op)[0])

    def values(op: Op, _: Context) -> Values:
        n_parts, step = parts(op)
        return {"cols": op.weight("weight").cols, "parts": n_parts, "part_step": step}

    def scratch(op: Op, c: Context) -> dict[str, int]:
        n = c.rows(op, "x") * parts(op)[0] * op.weight("weight").cols
        return {"codes": n, "factors": FACTOR_BYTES * n // BLOCK}

    return Kernel("quantize", grid, values, scratch=scratch, when=_is_rounded)


def _has_scales(op: Op, c: Context) -> bool:
    """True for a deferred norm in steps of prompts by matrix instructions.

    Else each block reads as many bytes of squares as of codes of x. Steps that only generate save the launch.
    """
    rows = c.rows(op, "x")
    by_matrix = is_half(op, c) or is_gemm(op, c)
    return op.name in DEFERRED and by_matrix and rows > max(TOKENS, c.plan.rows["S"])


def product_values(op: Op, c: Context, parts: Parts) -> Values:
    """Values of a product's kernel: rows of a matrix, vectors of x; no rounded x for floats."""
    n_parts, step = parts(op)
    known = {"rows": op.weight("weight").shape[-2], "parts": n_parts, "part_step": step, "y_step": 0}
    norm = (
        {"norm_cols": op.weight("weight").cols, "eps": op.number("eps")} if op.name in DEFERRED else NO_NORM
    )
    absent = {"scales": 0} if not _has_scales(op, c) else {}
    return {**known, **norm, **absent, **({} if _is_rounded(op, c) else {"codes": 0, "factors": 0})}


def _linear_values(op: Op, c: Context) -> Values:
    return product_values(op, c, one)


def _heads_values(op: Op, c: Context) -> Values:
    n_heads = op.weight("weight").shape[0]
    own = {"y_step": op.view("y").cols // n_heads, "cols": op.weight("weight").cols, "bias": 0}
    return {**product_values(op, c, _heads), **own}


def _glu_values(op: Op, c: Context) -> Values:
    return {**product_values(op, c, one), "rows": op.view("y").cols}


def _residual_values(op: Op, c: Context) -> Values:
    absent = dict.fromkeys(("z", "gain"), 0) if op.name == "linear_add" else {}
    return {**product_values(op, c, one), **absent, "scale": op.number("scale")}


def product_grid(op: Op, c: Context) -> Grid:
    return block_of(op, c).grid(op.view("y").cols, c.rows(op, "y"))


def _tile_grid(op: Op, c: Context) -> Grid:
    return block_of(op, c, TILE_ROWS).grid(op.view("y").cols, c.rows(op, "y"))


def _heads_grid(op: Op, c: Context) -> Grid:
    n_heads, n_out, _ = op.weight("weight").shape
    return block_of(op, c).grid(n_out, c.rows(op, "y"), n_heads)


def _beyond(op: Op) -> int:
    """Columns of a head that pass unchanged."""
    return _heads(op)[1] - op.weight("weight").cols


def _passes(op: Op, _: Context) -> bool:
    return _beyond(op) > 0


def _pass_grid(op: Op, c: Context) -> Grid:
    return (tiles(_beyond(op), PASS_THREADS), c.rows(op, "y"), _heads(op)[0])


def _embed_grid(role: str) -> Callable[[Op, Context], Grid]:
    return lambda op, c: (tiles(op.weight("weight").cols, BLOCK * EMBED_THREADS), *row_grid(role)(op, c)[1:])


def block_macros(op: Op, c: Context) -> Mapping[str, int]:
    return block_of(op, c).macros


def _tile_macros(op: Op, c: Context) -> Mapping[str, int]:
    return block_of(op, c, TILE_ROWS).macros


def _refuses_channel(op: Op, plan: Plan) -> str:
    channel = op.integer("channel")
    return "" if channel < plan.n_channels else f"position channel {channel} of {plan.n_channels}"


NORM_SCALE = Kernel(
    "norm_scale",
    row_grid("x"),
    lambda op, c: {"norm_cols": op.weight("weight").cols, "eps": op.number("eps")},
    scratch=lambda op, c: {"scales": 4 * c.rows(op, "x")},
    when=_has_scales,
)
LINEAR = Kernel("linear", product_grid, _linear_values, headers=codec, defines=block_macros)
HEADS = replace(LINEAR, grid=_heads_grid, values=_heads_values)
PASS = replace(HEADS, name="pass", grid=_pass_grid, when=_passes)
GLU = replace(
    LINEAR, file="glu", name="linear_glu", grid=_tile_grid, defines=_tile_macros, values=_glu_values
)
RESIDUAL = replace(
    LINEAR, file="residual", name="", grid=_tile_grid, defines=_tile_macros, values=_residual_values
)

KERNELS: dict[str, OpKernels] = {
    "embed": OpKernels(
        (Kernel("embed", _embed_grid("y"), lambda op, c: {"scale": op.number("scale")}, headers=codec),),
        ("scale",),
    ),
    "embed_position": OpKernels(
        (
            Kernel(
                "embed",
                _embed_grid("x"),
                lambda op, c: {"channel": op.integer("channel")},
                name="embed_position",
                headers=codec,
            ),
        ),
        ("channel",),
        refuses=_refuses_channel,
    ),
    "linear": OpKernels((quantize(one), LINEAR)),
    "norm_linear": OpKernels((quantize(one), NORM_SCALE, LINEAR), ("eps",)),
    "linear_add": OpKernels((quantize(one), RESIDUAL), ("scale",)),
    "linear_add_norm": OpKernels((quantize(one), RESIDUAL), ("scale",)),
    "linear_heads": OpKernels((quantize(_heads), HEADS, PASS)),
    "linear_glu": OpKernels((quantize(one), GLU), words={"act": GATES}),
    "norm_linear_glu": OpKernels((quantize(one), NORM_SCALE, GLU), ("eps",), {"act": GATES}),
}

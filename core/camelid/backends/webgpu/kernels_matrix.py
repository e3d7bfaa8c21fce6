"""Kernel rows of ops with weight matrices: embeddings, linear maps, mixtures of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from camelid.backends.webgpu.kernel import (
    GPU_LANES,
    LANES,
    ROW_WORDS,
    TOKENS,
    Constants,
    ConstantsOf,
    Context,
    Files,
    Grid,
    Kernel,
    row_grid,
    rows_of,
    tiles,
    width_grid,
)
from camelid.backends.webgpu.kernels_basic import GATES, ring_constants
from camelid.backends.webgpu.layouts import codec_constants, row_multiple
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.backends.webgpu.load import MOVABLE
from camelid.plan.op_rows_fused import QUAD  # also the weight rows of a quad in matvec.wgsl
from camelid.plan.plan import Op, Plan

WEIGHT = ("weight", "weight.words")  # one buffer, in units of 16 bytes and in words
FEW = 32  # columns of a chunk, which other products read at once
TILES_X = 32768
TILE_QUADS, TILE_LANES = 16, 256  # quads of weight rows and lanes of a workgroup in matmul_tile.wgsl
MAX_TILES = DEFAULTS["maxComputeWorkgroupsPerDimension"]
MAX_EXPERTS, MAX_SLOTS = 1024, 64  # array sizes in router.wgsl
ROUTER_GATES = {"softmax": 0, "sigmoid": 1, "topk_softmax": 2, "sparsemixer": 3}


def _codec_constants(op: Op) -> Constants:
    return codec_constants(op.weight("weight"))


def _embed_constants(op: Op, c: Context) -> Constants:
    weight = op.weight("weight")
    sizes: Constants = {"K": weight.cols, "PLACES": weight.rows, "SCALE": op.number("scale")}
    return sizes | ring_constants(op, c) | _codec_constants(op)


def _position_constants(op: Op, _: Context) -> Constants:
    weight = op.weight("weight")
    sizes: Constants = {"K": weight.cols, "PLACES": weight.rows, "CHANNEL": op.integer("channel")}
    return sizes | _codec_constants(op)


def _refuses_channel(op: Op, plan: Plan) -> str:
    channel = op.integer("channel")
    return "" if channel < plan.n_channels else f"position channel {channel} of {plan.n_channels}"


def product_groups(op: Op, c: Context) -> int:
    """Workgroups of all weight rows."""
    quads = tiles(op.weight("weight").rows, QUAD)
    return tiles(quads, TILE_QUADS if c.is_tiled(op) else LANES // c.lanes * c.quads(op))


def _product_grid(op: Op, c: Context) -> Grid:
    n = product_groups(op, c)
    return (min(n, TILES_X), rows_of(op, "y", c.tokens(op, "y")), tiles(n, TILES_X))


def product_constants(op: Op, c: Context) -> Constants:
    """Constants of product.wgsl."""
    sizes: Constants = {"K": op.weight("weight").cols, "N": op.view("y").cols}
    # One row is within T and within O, so both share a pipeline.
    tokens = c.tokens(op, "y")
    rows = op.view("y").rows if c.plan.rows[op.view("y").rows] > 1 else "T"
    row = {"LANES": c.lanes, "TOKENS": tokens, "QUADS": c.quads(op), "ROWS_WORD": ROW_WORDS[rows]}
    return sizes | row | {"SLICE": _slice(tokens)} | _codec_constants(op)


def _slice(tokens: int) -> int:
    """Chunks of x that matvec_q8.wgsl rounds at a time: 6 KB of workgroup memory for all token rows."""
    return GPU_LANES * max(TOKENS // tokens, 1)


def norm_constants(op: Op, c: Context) -> Constants:
    """Constants of a product of a deferred norm."""
    return product_constants(op, c) | {"IS_DEFERRED": 1, "EPS": op.number("eps")}


def _add_constants(op: Op, c: Context) -> Constants:
    return product_constants(op, c) | {"SCALE": op.number("scale")}


def _experts_grid(op: Op, c: Context) -> Grid:
    n = tiles(op.weight("weight").shape[1], QUAD * LANES // c.lanes)
    return (n, rows_of(op, "y"), op.view("ids").cols)


def _experts_constants(op: Op, c: Context) -> Constants:
    n_experts, n_out, n_in = op.weight("weight").shape
    x_slot = 0 if op.view("x").cols == n_in else n_in // 4
    sizes: Constants = {"K": n_in, "N": n_out, "EXPERTS": n_experts, "X_SLOT": x_slot}
    return sizes | {"LANES": c.lanes, "TOKENS": 1, "SLICE": _slice(1)} | _codec_constants(op)


def _refuses_wide(op: Op, _: Plan) -> str:
    n_out, most = op.weight("weight").shape[1], MAX_TILES * QUAD * LANES // GPU_LANES
    return f"experts of {n_out} outputs, at most {most}" if n_out > most else ""


def _router_constants(op: Op, _: Context) -> Constants:
    sizes: Constants = {"EXPERTS": op.view("logits").cols, "SLOTS": op.view("ids").cols}
    groups: Constants = {"GROUPS": op.integer("n_groups"), "GROUPS_USED": op.integer("n_groups_used")}
    return sizes | groups | {"NORMALIZE": op.integer("normalize"), "SCALE": op.number("scale")}


def _refuses_many(op: Op, _: Plan) -> str:
    n_experts, n_used = op.view("logits").cols, op.view("ids").cols
    if op.integer("n_groups") > MAX_SLOTS:
        return f"{op.integer('n_groups')} groups of experts, at most {MAX_SLOTS}"
    fits = n_experts <= MAX_EXPERTS and n_used <= MAX_SLOTS
    return "" if fits else f"{n_used} of {n_experts} experts, at most {MAX_SLOTS} of {MAX_EXPERTS}"


def product(files: Files, bindings: tuple[str, ...], constants: ConstantsOf, **more: Any) -> Kernel:
    """The kernel of a product; `files` have its outputs."""
    tiled = (*files, "deferred", "matmul_tile", "matmul")
    few = (*files, "deferred", "partial", "matvec", "squares", "matvec_quads")
    # Naga: the override of matvec_wide stands before the array of partial.
    wide = (*files, "deferred", "matvec_wide", "partial", "matvec", "squares")
    more |= {"codec": "weight", "vec4": ("x",)}
    return Kernel(few, bindings, constants, _product_grid, tiled, wide, **more)


def _narrow_constants(op: Op, _: Context) -> Constants:
    weight = op.weight("weight")
    return {"K": weight.cols, "N": weight.rows, "TYPE": MOVABLE[weight.type]}


NARROW = Kernel(("linear_narrow",), ("y", "x", "weight", "bias?"), _narrow_constants, width_grid("y"),
                plain="weight")  # fmt: skip


def _linear_form(row: Kernel, op: Op) -> Kernel:
    """The kernel of rows of weights that start at multiples of 16 bytes, or of a few numbers that do not."""
    weight, x = op.weight("weight"), op.view("x")
    is_even = not (weight.cols % row_multiple(weight.type) or x.stride % QUAD or x.offset % QUAD)
    return row if is_even or weight.cols >= FEW or weight.type not in MOVABLE else NARROW


RESIDUAL = ("bias", "product", "consecutive", "residual")
LINEAR = product(
    ("bias", "product", "consecutive", "linear"), ("y", "x", *WEIGHT, "bias?"), product_constants
)
GLU = product(("product", "linear_glu"), ("y", "x", *WEIGHT), product_constants, acts=GATES)

KERNELS: dict[str, Kernel] = {
    "embed": Kernel(("embed",), ("y", *WEIGHT, "tokens.id+"), _embed_constants, row_grid("y"),
                    codec="weight", attrs=("scale",), vec4=("y",)),
    "embed_position": Kernel(("embed_position",), ("x", *WEIGHT), _position_constants, row_grid("x"),
                             codec="weight", attrs=("channel",), vec4=("x",), refuses=_refuses_channel),
    "linear": replace(LINEAR, form=_linear_form),
    "linear_glu": GLU,
    "norm_linear": replace(LINEAR, constants=norm_constants, attrs=("eps",)),
    "norm_linear_glu": replace(GLU, constants=norm_constants, attrs=("eps",)),
    "linear_add": product((*RESIDUAL, "linear_add"), ("y", "x", *WEIGHT, "bias?"), _add_constants,
                           attrs=("scale",)),
    "linear_add_norm": product((*RESIDUAL, "linear_add_norm", "norm_behind"),
                               ("y", "x", *WEIGHT, "bias?", "z", "gain"), _add_constants, attrs=("scale",)),
    "router": Kernel(("reduce", "router"), ("ids", "probs", "logits", "bias?", "gain?"), _router_constants,
                     row_grid("logits"), attrs=("normalize", "scale", "n_groups", "n_groups_used"),
                     words={"gate": ROUTER_GATES}, refuses=_refuses_many),
    "linear_experts": Kernel(("bias", "experts", "product", "partial", "matvec", "linear_experts"),
                             ("y", "x", *WEIGHT, "bias?", "ids"), _experts_constants, _experts_grid,
                             codec="weight", vec4=("x",), refuses=_refuses_wide),
}  # fmt: skip

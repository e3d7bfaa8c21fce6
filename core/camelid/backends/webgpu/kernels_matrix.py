"""Kernel rows of ops with weight matrices: embeddings, linear maps, mixtures of experts."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import (
    GPU_LANES,
    LANES,
    ROW_WORDS,
    Constants,
    Context,
    Grid,
    Kernel,
    row_grid,
    rows_of,
    tiles,
)
from camelid.backends.webgpu.kernels_basic import GATES, ring_constants
from camelid.backends.webgpu.layouts import codec_constants
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.plan.plan import Op, Plan

WEIGHT = ("weight", "weight.words")  # one buffer, in units of 16 bytes and in words
TILES_X = 32768
TILE_ROWS = 64  # weight rows of a workgroup in matmul.wgsl
LANE_ROWS = 4  # weight rows per lane, R in matvec.wgsl
MAX_TILES = DEFAULTS["maxComputeWorkgroupsPerDimension"]
MAX_EXPERTS, MAX_SLOTS = 1024, 64  # array sizes in router.wgsl
ROUTER_GATES = {"softmax": 0, "sigmoid": 1, "topk_softmax": 2}


def _codec_constants(op: Op) -> Constants:
    return codec_constants(op.weight("weight"))


def _embed_constants(op: Op, c: Context) -> Constants:
    weight = op.weight("weight")
    sizes: Constants = {"K": weight.cols, "VOCAB": weight.rows, "SCALE": op.number("scale")}
    return sizes | ring_constants(op, c) | _codec_constants(op)


def _position_constants(op: Op, _: Context) -> Constants:
    weight = op.weight("weight")
    sizes: Constants = {"K": weight.cols, "PLACES": weight.rows, "CHANNEL": op.integer("channel")}
    return sizes | _codec_constants(op)


def _refuses_channel(op: Op, plan: Plan) -> str:
    channel = op.integer("channel")
    return "" if channel < plan.n_channels else f"position channel {channel} of {plan.n_channels}"


def _weight_rows(c: Context) -> int:
    """Weight rows per workgroup."""
    return LANE_ROWS * LANES // c.lanes


def _matvec_grid(op: Op, c: Context, per: int) -> Grid:
    n = tiles(op.view("y").cols, per)
    return (min(n, TILES_X), rows_of(op, "y", c.tokens(op, "y")), tiles(n, TILES_X))


def _matvec_constants(op: Op, c: Context) -> Constants:
    sizes: Constants = {"K": op.view("x").cols, "N": op.view("y").cols}
    row = {"LANES": c.lanes, "TOKENS": c.tokens(op, "y"), "ROWS_WORD": ROW_WORDS[op.view("y").rows]}
    return sizes | row | _codec_constants(op)


def _linear_grid(op: Op, c: Context) -> Grid:
    return _matvec_grid(op, c, TILE_ROWS if c.is_tiled(op) else _weight_rows(c))


def _glu_grid(op: Op, c: Context) -> Grid:
    return _matvec_grid(op, c, (TILE_ROWS if c.is_tiled(op) else _weight_rows(c)) // 2)


def _experts_grid(op: Op, c: Context) -> Grid:
    return (tiles(op.weight("weight").shape[1], _weight_rows(c)), rows_of(op, "y"), op.view("ids").cols)


def _experts_constants(op: Op, c: Context) -> Constants:
    n_experts, n_out, n_in = op.weight("weight").shape
    x_slot = 0 if op.view("x").cols == n_in else n_in // 4
    sizes: Constants = {"K": n_in, "N": n_out, "EXPERTS": n_experts, "X_SLOT": x_slot}
    return sizes | {"LANES": c.lanes, "TOKENS": 1} | _codec_constants(op)


def _refuses_wide(op: Op, _: Plan) -> str:
    n_out, most = op.weight("weight").shape[1], MAX_TILES * LANE_ROWS * LANES // GPU_LANES
    return f"experts of {n_out} outputs, at most {most}" if n_out > most else ""


def _router_constants(op: Op, _: Context) -> Constants:
    sizes: Constants = {"EXPERTS": op.view("logits").cols, "SLOTS": op.view("ids").cols}
    return sizes | {"NORMALIZE": op.integer("normalize"), "SCALE": op.number("scale")}


def _refuses_many(op: Op, _: Plan) -> str:
    n_experts, n_used = op.view("logits").cols, op.view("ids").cols
    fits = n_experts <= MAX_EXPERTS and n_used <= MAX_SLOTS
    return "" if fits else f"{n_used} of {n_experts} experts, at most {MAX_SLOTS} of {MAX_EXPERTS}"


KERNELS: dict[str, Kernel] = {
    "embed": Kernel(("embed",), ("y", *WEIGHT, "tokens.id+"), _embed_constants, row_grid("y"),
                    codec="weight", attrs=("scale",), vec4=("y",)),
    "embed_position": Kernel(("embed_position",), ("x", *WEIGHT), _position_constants, row_grid("x"),
                             codec="weight", attrs=("channel",), vec4=("x",), refuses=_refuses_channel),
    "linear": Kernel(("bias", "product", "matvec", "linear"), ("y", "x", *WEIGHT, "bias?"),
                     _matvec_constants, _linear_grid, codec="weight", vec4=("x",),
                     tiled=("bias", "product", "linear_tile", "matmul")),
    "linear_glu": Kernel(("product", "matvec", "linear_glu"), ("y", "x", *WEIGHT), _matvec_constants,
                         _glu_grid, codec="weight", acts=GATES, vec4=("x",),
                         tiled=("product", "linear_glu_tile", "matmul")),
    "router": Kernel(("reduce", "router"), ("ids", "probs", "logits", "bias?"), _router_constants,
                     row_grid("logits"), attrs=("normalize", "scale"), words={"gate": ROUTER_GATES},
                     refuses=_refuses_many),
    "linear_experts": Kernel(("bias", "experts", "product", "matvec", "linear_experts"),
                             ("y", "x", *WEIGHT, "bias?", "ids"), _experts_constants, _experts_grid,
                             codec="weight", vec4=("x",), refuses=_refuses_wide),
}  # fmt: skip

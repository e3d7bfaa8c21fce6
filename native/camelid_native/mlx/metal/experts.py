"""Products of mixtures of experts on Metal: each row with the experts that it has chosen.

Few rows read their experts one by one. The pairs of a row and a slot of many rows are sorted by expert, so
that a tile of pairs decodes each weight once. Sums have the order of all products: both ways have the same
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid_native.mlx.arrays import Array, mx
from camelid_native.mlx.metal.launch import LANES, Grid, Kernel, Value, launch
from camelid_native.mlx.metal.products import (
    FEW_OUTPUTS,
    MOST_FEW,
    PRODUCT,
    SIMDGROUPS,
    TILE_OUTPUTS,
    TILE_ROWS,
    Form,
    flags,
    gate_file,
    matrix_sizes,
)

_WEIGHTS = ("weights", "up_weights", "x", "bias", "up_bias")
FEW = Kernel(
    header=(*PRODUCT, "defer", "store", "expert"), body=("experts",), inputs=(*_WEIGHTS, "ids", "count")
)
TILE = Kernel(
    header=(*PRODUCT, "tile", "expert"), body=("experts_tile",), inputs=(*_WEIGHTS, "order", "borders")
)
ROUTER = Kernel(
    header=("math", "place"), body=("router",), inputs=("logits", "bias", "count"), outputs=("ids", "probs")
)
ROUTERS = ("softmax", "sigmoid", "topk_softmax", "sparsemixer")
_CHOSEN = (mx.uint32, mx.float32)
COMBINE = Kernel(header=(), body=("combine",), inputs=("x", "probs", "count"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of matrices [experts, outputs, cols] as the file's blocks, with a bias [experts, outputs]."""

    blocks: Array
    weight_type: str
    experts: int
    outputs: int
    cols: int
    bias: Array | None = None


def experts(
    x: Array,
    ids: Array,
    stack: Stack,
    *,
    count: Array,
    count_at: int = 0,
    up: Stack | None = None,
    act: str = "",
) -> Array:  # x [T, cols or U*cols], ids [T, U] of any dtype -> y [T, U*outputs]
    """y[slot] = stack[ids[slot]] @ x[slot] + bias; an x of one slot serves all slots.

    With `up`, y = act(this) * (the same product of `up`).
    """
    n_rows, n_slots = ids.shape
    if n_rows > MOST_FEW:
        y = _sorted(x, ids, stack, up, act, mx.arange(n_rows) < count[count_at])
        return mx.reshape(y, (n_rows, n_slots * stack.outputs))
    own = FEW_OUTPUTS // (2 if act else 1)
    constants: dict[str, Value] = {
        **_constants(stack, act),
        "OUTPUTS": own,
        "ROWS": n_rows * n_slots,
        "X_COLS": x.shape[1],
        "SLOTS": n_slots,
        "IS_FED": x.shape[1] != stack.cols,
        "SIMDGROUPS": SIMDGROUPS,
        "COUNT_AT": count_at,
    }
    arrays = _arrays(x, stack, up) | {"ids": ids, "count": count}
    groups = -(-stack.outputs // (own * SIMDGROUPS))
    grid = Grid(groups=(groups, n_slots, n_rows), simdgroups=SIMDGROUPS)
    shapes, files = [(n_rows, n_slots * stack.outputs)], _files(stack, act)
    return launch(FEW, arrays, constants=constants, grid=grid, shapes=shapes, files=files)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Attributes of the op `router`: how it chooses `used` experts, and what their probabilities become."""

    gate: str
    used: int
    normalize: bool = False
    scale: float = 1.0
    n_groups: int = 1
    n_groups_used: int = 1


def router(
    logits: Array,
    choice: Choice,
    *,
    count: Array,
    count_at: int = 0,
    bias: Array | None = None,
) -> tuple[Array, Array]:  # [T, E] -> ids u32 [T, U], probs f32 [T, U]
    """The op `router`; ids and probabilities of rows beyond the count are 0."""
    n_rows, n_experts = logits.shape
    constants: dict[str, Value] = {
        "EXPERTS": n_experts,
        "USED": choice.used,
        "GATE": ROUTERS.index(choice.gate),
        "NORMALIZE": choice.normalize,
        "SCALE": float(choice.scale),
        "N_GROUPS": choice.n_groups,
        "GROUPS_USED": choice.n_groups_used,
        "HAS_BIAS": bias is not None,
        "COUNT_AT": count_at,
    }
    arrays = {"logits": logits, "count": count, "bias": logits if bias is None else bias}
    grid, shapes = Grid(groups=(n_rows, 1, 1)), [(n_rows, choice.used)] * 2
    ids, probs = launch(ROUTER, arrays, constants=constants, grid=grid, shapes=shapes, dtypes=_CHOSEN)
    return ids, probs


def heads(
    x: Array, stack: Stack, *, count: Array, count_at: int = 0
) -> Array:  # x [T, H*(cols + rest)] -> y [T, H*(outputs + rest)]
    """The op `linear_heads`: head h with matrix h of the stack; a head's other columns pass unchanged."""
    n_rows, n_heads = x.shape[0], stack.experts
    apart = mx.reshape(x, (n_rows, n_heads, -1))
    fed = mx.reshape(apart[..., : stack.cols], (n_rows, n_heads * stack.cols))
    ids = mx.broadcast_to(mx.arange(n_heads, dtype=mx.uint32), (n_rows, n_heads))
    y = mx.reshape(experts(fed, ids, stack, count=count, count_at=count_at), (n_rows, n_heads, -1))
    is_live = (mx.arange(n_rows) < count[count_at])[:, None, None]
    rest = mx.where(is_live, apart[..., stack.cols :], 0.0)
    return mx.reshape(mx.concatenate([y, rest], axis=2), (n_rows, -1))


def combine(
    x: Array, probs: Array, *, count: Array, count_at: int = 0
) -> Array:  # x [T, U*C], probs [T, U] -> y [T, C]
    """y = the sum over slots of probs[slot] * x[slot], in order."""
    n_rows, n_slots = probs.shape
    cols = x.shape[1] // n_slots
    constants: dict[str, Value] = {"N": cols, "SLOTS": n_slots, "COUNT_AT": count_at}
    grid, arrays = Grid(groups=(-(-cols // LANES), n_rows, 1)), {"x": x, "probs": probs, "count": count}
    return launch(COMBINE, arrays, constants=constants, grid=grid, shapes=[(n_rows, cols)])[0]


def _sorted(
    x: Array, ids: Array, stack: Stack, up: Stack | None, act: str, is_live: Array
) -> Array:  # [T*U, outputs]
    """The products of all pairs, sorted by expert; pairs of rows that do not live come last and become 0."""
    n_rows, n_slots = ids.shape
    chosen = mx.flatten(mx.where(is_live[:, None], ids.astype(mx.int32), stack.experts))
    order = mx.argsort(chosen).astype(mx.uint32)
    numbers = mx.arange(stack.experts + 1, dtype=mx.int32)
    borders = (chosen[None] < numbers[:, None]).sum(axis=1).astype(mx.uint32)
    is_fed = x.shape[1] != stack.cols
    rows = mx.reshape(x, (-1, stack.cols))[order if is_fed else order // n_slots]
    own = TILE_OUTPUTS // (2 if act else 1)
    constants: dict[str, Value] = {**_constants(stack, act), "OUTPUTS": own, "X_COLS": stack.cols}
    constants["EXPERTS"] = stack.experts
    arrays = _arrays(rows, stack, up) | {"order": order, "borders": borders}
    n_tiles = n_rows * n_slots // TILE_ROWS + min(stack.experts, n_rows * n_slots)
    grid = Grid(groups=(-(-stack.outputs // own), n_tiles, 1), simdgroups=SIMDGROUPS)
    shapes, files = [(n_rows * n_slots, stack.outputs)], _files(stack, act)
    return launch(TILE, arrays, constants=constants, grid=grid, shapes=shapes, files=files, fill=0.0)[0]


def _constants(stack: Stack, act: str) -> dict[str, Value]:
    form = Form(weight_type=stack.weight_type, outputs=stack.outputs, cols=stack.cols, act=act)
    sizes = matrix_sizes(form.weight_type, form.outputs, form.cols)
    return {**sizes, **flags(form, stack.bias is not None, False), "IS_DEFERRED": False}


def _arrays(x: Array, stack: Stack, up: Stack | None) -> dict[str, Array]:
    second = up or stack
    biases = [x if one.bias is None else one.bias for one in (stack, second)]
    weights = {"weights": stack.blocks, "up_weights": second.blocks}
    return {**weights, "x": x, "bias": biases[0], "up_bias": biases[1]}


def _files(stack: Stack, act: str) -> dict[str, str]:
    return {"type": stack.weight_type, "gate": gate_file(act)}

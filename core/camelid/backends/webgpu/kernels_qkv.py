"""Kernel rows of queries, keys and values with their rotation and the write to the KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from camelid.backends.webgpu.halves import PREFIX, prefixed
from camelid.backends.webgpu.kernel import LANES, Constants, Context, Files, Grid, Kernel, rows_of, tiles
from camelid.backends.webgpu.kernels_matrix import (
    TILE_LANES,
    TILES_X,
    WEIGHT,
    norm_constants,
    product,
    product_constants,
    product_groups,
)
from camelid.backends.webgpu.kernels_state import STYLES, paged_constants, spec_of, turn_constants
from camelid.backends.webgpu.layouts import bound_bytes, reads_words
from camelid.backends.webgpu.limits import most_bytes
from camelid.backends.webgpu.state_buffers import layer_binding, regions
from camelid.plan.norm_rope import norm_rope_parts
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, Plan
from camelid.plan.qkv import qkv_halves, qkv_parts

PUT_PAIR: dict[str, Files] = {"f32": ("kv_pair_f32",), "f16": ("half_bits", "kv_pair_f16")}
FILES = ("product", "pages", "turn", "qkv")
BINDINGS = ("y", "x", *WEIGHT, "state.tables", "state.*+", "fine", "coarse", "bias?")
SECOND = ("v_weight", "v_weight.words", "v_bias?")  # bindings of values with a weight of their own
HALVES = ("", PREFIX)  # prefixes of the roles of a half
GAINS = ("x", "fine", "coarse", "q_gain")
CUT = ("k_cols", "v_cols", "head_dim", "dim", "offset")


def _can_write(op: Op, c: Context) -> bool:
    """True for a cache of a type without blocks, whose layers a binding holds."""
    spec = spec_of(op, c.plan)
    layer = layer_binding(spec, op.state("state").layer, c.pools[spec.name].units)
    return spec.kv_type in PUT_PAIR and layer[2] <= most_bytes(c.limits)


def _fits(op: Op, c: Context) -> bool:
    """True for such a cache, quads within heads, ten bindings, weights that a binding holds, and no gains."""
    sizes = (op.integer("head_dim"), op.integer("dim"), op.integer("offset"), op.integer("v_cols"))
    enough = c.limits["maxStorageBuffersPerShaderStage"] > len(BINDINGS)
    has_more = op.has("q_gain") or op.has("tail")
    weights = [op.weight(role) for role in ("weight", "v_weight") if op.has(role)]
    is_small = all(bound_bytes(weight) <= most_bytes(c.limits) for weight in weights)
    is_even = not any(size % QUAD for size in sizes)
    return enough and is_small and is_even and not has_more and _can_write(op, c)


def _unbound(op: Op) -> dict[str, str]:
    """Bindings that an op of two halves does without, each with its variable."""
    blocks = [half for half in HALVES if not reads_words(op.weight(f"{half}weight").type)]
    found = {f"{half}weight.words": f"{half}words" for half in blocks}
    return found | {f"{half}bias?": f"{half}bias" for half in HALVES if not op.has(f"{half}bias")}


def _both_bindings(op: Op) -> tuple[str, ...]:
    return tuple(role for role in (*BINDINGS, *SECOND) if role not in _unbound(op))


def _is_one_dispatch(op: Op, c: Context) -> bool:
    """True if both halves multiply x rounded, or both as it is, and a dispatch holds and binds them."""
    is_rounded = {c.is_rounded(op, f"{half}weight") for half in HALVES}
    is_small = len(is_rounded) == 1 and op.view("y").cols <= TILES_X
    return is_small and c.limits["maxStorageBuffersPerShaderStage"] > len(_both_bindings(op))


def _lower_qkv(op: Op, c: Context) -> tuple[Op, ...]:
    if not _fits(op, c):
        return qkv_parts(op)
    return qkv_halves(op) if op.has("v_weight") and not _is_one_dispatch(op, c) else (op,)


def _lower_norm_rope(op: Op, c: Context) -> tuple[Op, ...]:
    return (op,) if op.integer("v_cols") % 2 == 0 and _can_write(op, c) else norm_rope_parts(op)


def _refuses_odd(op: Op, _: Plan) -> str:
    head_dim = op.integer("head_dim")
    return f"heads of {head_dim} floats; a multiple of 2 is required" if head_dim % 2 else ""


def _cut_constants(op: Op, role: str) -> Constants:
    return {
        "TURNED": op.view(role).cols - op.integer("v_cols"),
        "WIDTH": op.integer("k_cols"),
        "V_WIDTH": op.integer("v_cols"),
        **turn_constants(op),
    }


def _write_constants(op: Op, c: Context) -> Constants:
    state = op.state("state")
    values = regions(spec_of(op, c.plan), state.layer, c.pools[state.group].units)["v"]
    return {"VALUES_AT": values.offset // 4, **paged_constants(op, c)}


def _qkv(of_product: Callable[[Op, Context], Constants], *attrs: str) -> Kernel:
    def constants(op: Op, c: Context) -> Constants:
        style: Constants = {"IS_ADJACENT": int(op.word("style") == "norm")}
        return of_product(op, c) | _cut_constants(op, "y") | _write_constants(op, c) | style

    return product(FILES, BINDINGS, constants, attrs=(*CUT, *attrs), words={"style": STYLES},
                   state_codec=PUT_PAIR, parts=qkv_parts, lower=_lower_qkv, form=_form)  # fmt: skip


def _form(one: Kernel, op: Op) -> Kernel:
    """The kernel of both halves of an op with a weight of values, from the kernel of one half."""
    if not op.has("v_weight"):
        return one
    first, second = qkv_halves(op)

    def constants(_: Op, c: Context) -> Constants:
        places: Constants = {"Y_OFFSET": second.view("y").offset, "HAS_BIAS": int(second.has("bias"))}
        own = prefixed({**one.constants(second, c), **places})
        sizes: Constants = {
            "FIRST_GROUPS": product_groups(first, c),
            "GROUP_SIZE": TILE_LANES if c.is_tiled(op) else LANES,
        }
        return {**one.constants(first, c), **own, **sizes}

    def grid(_: Op, c: Context) -> Grid:
        n_groups = product_groups(first, c) + product_groups(second, c)
        return n_groups, rows_of(op, "y", c.tokens(op, "y")), 1

    return replace(one, bindings=_both_bindings(op), constants=constants, grid=grid, second="v_weight",
                   unbound=tuple(_unbound(op).values()))  # fmt: skip


def _norm_rope_constants(op: Op, _: Context) -> Constants:
    return _cut_constants(op, "x") | {"EPS": op.number("eps")}


def _norm_rope_grid(op: Op, _: Context) -> Grid:
    heads = (op.view("x").cols - op.integer("v_cols")) // op.integer("head_dim")
    return (heads + tiles(op.integer("v_cols"), 2 * LANES), rows_of(op, "x"), 1)


KERNELS = {
    "qkv": _qkv(product_constants),
    "norm_qkv": _qkv(norm_constants, "eps"),
    "norm_rope": Kernel(("reduce", "turn", "norm_rope", "norm_rope_alone"), (*GAINS, "k_gain"),
                        _norm_rope_constants, _norm_rope_grid, attrs=(*CUT, "eps"), words={"style": STYLES},
                        refuses=_refuses_odd),
    "norm_rope_write": Kernel(
        ("reduce", "turn", "pages", "norm_rope", "norm_rope_write"),
        (*GAINS, "state.tables", "state.*+", "k_gain"),
        lambda op, c: _norm_rope_constants(op, c) | _write_constants(op, c), _norm_rope_grid,
        attrs=(*CUT, "eps"), words={"style": STYLES}, state_codec=PUT_PAIR, parts=norm_rope_parts,
        lower=_lower_norm_rope,
    ),
}  # fmt: skip

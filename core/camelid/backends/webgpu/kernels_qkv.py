"""Kernel rows of the joined query, key and value of a layer."""

from __future__ import annotations

from camelid.backends.webgpu.kernel import Constants, Context, Files, Kernel
from camelid.backends.webgpu.kernels_matrix import WEIGHT, norm_constants, product, product_constants
from camelid.backends.webgpu.kernels_state import STYLES, paged_constants
from camelid.backends.webgpu.layouts import bound_bytes
from camelid.backends.webgpu.limits import most_bytes
from camelid.backends.webgpu.state_buffers import layer_binding, regions
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, StateSpec
from camelid.plan.qkv import qkv_parts

PUT_PAIR: dict[str, Files] = {"f32": ("kv_pair_f32",), "f16": ("half_bits", "kv_pair_f16")}
FILES = ("product", "pages", "turn", "qkv")
BINDINGS = ("y", "x", *WEIGHT, "state.tables", "state.*+", "fine", "coarse", "bias?")


def _spec(op: Op, c: Context) -> StateSpec:
    return c.plan.state(op.state("state").group)


def _fits(op: Op, c: Context) -> bool:
    """True for a cache type without blocks, quads within heads, ten bindings, and sizes that they hold."""
    sizes = (op.integer("head_dim"), op.integer("dim"), op.integer("offset"), op.integer("v_cols"))
    enough = c.limits["maxStorageBuffersPerShaderStage"] > len(BINDINGS)
    layer = layer_binding(_spec(op, c), op.state("state").layer, c.pools[_spec(op, c).name].units)
    is_small = max(bound_bytes(op.weight("weight")), layer[2]) <= most_bytes(c.limits)
    return enough and is_small and _spec(op, c).kv_type in PUT_PAIR and not any(size % QUAD for size in sizes)


def _cut_constants(op: Op, c: Context) -> Constants:
    state = op.state("state")
    values = regions(_spec(op, c), state.layer, c.pools[state.group].units)["v"]
    return {
        "TURNED": op.view("y").cols - op.integer("v_cols"),
        "WIDTH": op.integer("k_cols"),
        "V_WIDTH": op.integer("v_cols"),
        "VALUES_AT": values.offset // 4,
        "HEAD_DIM": op.integer("head_dim"),
        "OFFSET": op.integer("offset"),
        "PAIRS": op.integer("dim") // 2,
        "IS_ADJACENT": int(op.word("style") == "norm"),
        "FINE_ROWS": op.weight("fine").rows,
        **paged_constants(op, c),
    }


def _kernel(name: str) -> Kernel:
    def constants(op: Op, c: Context) -> Constants:
        own = norm_constants(op, c) if name == "norm_qkv" else product_constants(op, c)
        return own | _cut_constants(op, c)

    more = ("eps",) if name == "norm_qkv" else ()
    return product(FILES, BINDINGS, constants, attrs=("k_cols", "v_cols", "head_dim", "dim", "offset", *more),
                   words={"style": STYLES}, state_codec=PUT_PAIR, parts=qkv_parts, fits=_fits)  # fmt: skip


KERNELS = {name: _kernel(name) for name in ("qkv", "norm_qkv")}

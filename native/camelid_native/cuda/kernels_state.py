"""Kernel rows of ops with positions or state: page tables, copies, RoPE, keys and values, attention."""

from __future__ import annotations

from camelid.formats.quants import row_bytes
from camelid.plan.plan import Op, Plan, StateSpec
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles
from camelid_native.cuda.signature import Values

THREADS = 256
KV_TYPES = ("f32", "f16", "q8_0", "q4_0")  # state types with a header kv_TYPE.h


def spec_of(op: Op, plan: Plan, role: str = "state") -> StateSpec:
    """The state group of an operand."""
    return plan.state(op.state(role).group)


def kv_header(op: Op, c: Context) -> tuple[str, ...]:
    """The header of the state's type."""
    return (f"kv_{spec_of(op, c.plan).kv_type}",)


def refuses_type(op: Op, plan: Plan) -> str:
    """The reason why the type of the state has no header, or ""."""
    spec = spec_of(op, plan)
    if spec.kv_type in KV_TYPES:
        return ""
    return f"state {spec.name!r} of type {spec.kv_type}; supported: {', '.join(KV_TYPES)}"


def turn_values(op: Op) -> Values:
    """The tables of turn.h, and the places of rotated pairs in a head."""
    pairs, is_adjacent = op.integer("dim") // 2, op.word("style") == "norm"
    return {
        "head_dim": op.integer("head_dim"),
        "offset": op.integer("offset"),
        "pairs": pairs,
        "next": 1 if is_adjacent else pairs,
        "pitch": 2 if is_adjacent else 1,
        "fine_rows": op.weight("fine").rows,
        "coarse_rows": op.weight("coarse").rows,
    }


def _heads(op: Op) -> int:
    return op.view("x").cols // op.integer("head_dim")


def _rope_values(op: Op, _: Context) -> Values:
    return {"heads": _heads(op), "channel": op.integer("channel"), **turn_values(op)}


def _rope_grid(op: Op, c: Context) -> Grid:
    return (tiles(_heads(op) * op.integer("dim") // 2, THREADS), c.rows(op, "x"), 1)


def _kv_grid(op: Op, c: Context) -> Grid:
    """Blocks of the wider of keys and values, rows, and tensors."""
    tensors = spec_of(op, c.plan).tensors
    return (tiles(max(cols for _, cols in tensors), THREADS), c.rows(op, "k"), len(tensors))


def _copy_values(op: Op, c: Context) -> Values:
    return {"group": c.plan.group(op.state("state").group)}


def _copy_grid(op: Op, c: Context) -> Grid:
    """Blocks of a unit's widest tensor, copies, and tensors of all layers."""
    spec = spec_of(op, c.plan)
    widest = max(row_bytes(spec.kv_type, cols) for _, cols in spec.tensors) * spec.unit_rows
    n_regions = len(spec.tensors) * max(len(spec.layers), 1)
    return (tiles(widest, 2 * THREADS), max(c.plan.key.capacity.copies, 1), n_regions)


def _updates_grid(_: Op, c: Context) -> Grid:
    return (tiles(max(c.plan.key.capacity.updates, 1), THREADS), 1, 1)


KERNELS: dict[str, OpKernels] = {
    "tables": OpKernels((Kernel("state", _updates_grid, name="tables"),)),
    "copy": OpKernels((Kernel("state", _copy_grid, _copy_values, name="copy"),)),
    "rope": OpKernels(
        (Kernel("rope", _rope_grid, _rope_values),), ("head_dim", "dim", "offset", "style", "channel")
    ),
    "kv_write": OpKernels((Kernel("kv_write", _kv_grid, headers=kv_header),), refuses=refuses_type),
}

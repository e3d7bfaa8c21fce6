"""Kernel rows of ops with positions or state: page tables, copies, RoPE, keys and values, attention."""

from __future__ import annotations

from camelid.formats.quants import row_bytes
from camelid.plan.plan import Op
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles
from camelid_native.cuda.signature import Values

THREADS = 256


def _copy_values(op: Op, c: Context) -> Values:
    return {"group": c.plan.group(op.state("state").group)}


def _copy_grid(op: Op, c: Context) -> Grid:
    """Blocks of a unit's widest tensor, copies, and tensors of all layers."""
    spec = c.plan.state(op.state("state").group)
    widest = max(row_bytes(spec.kv_type, cols) for _, cols in spec.tensors) * spec.unit_rows
    n_regions = len(spec.tensors) * max(len(spec.layers), 1)
    return (tiles(widest, 2 * THREADS), max(c.plan.key.capacity.copies, 1), n_regions)


def _updates_grid(_: Op, c: Context) -> Grid:
    return (tiles(max(c.plan.key.capacity.updates, 1), THREADS), 1, 1)


KERNELS: dict[str, OpKernels] = {
    "tables": OpKernels((Kernel("state", _updates_grid, name="tables"),)),
    "copy": OpKernels((Kernel("state", _copy_grid, _copy_values, name="copy"),)),
}

"""Device layout of state: buffers of layers and of page tables, with rows of whole words.

A layer of a group is one buffer, with its tensors one after the other; of adapters, each tensor is a buffer,
so that a limit bounds the slots of one matrix, not of a layer. A row of a type with blocks has the quants of
all blocks first, then their f16 scales, padded to a word, since GGUF's blocks are aligned to two bytes only.
All page tables share one buffer, since attention over two tiers needs all eight bindings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from camelid.backends.base import PoolSize
from camelid.formats.quants import quant, row_bytes
from camelid.plan.op_rows_adapters import KIND as ADAPTER
from camelid.plan.plan import StateRef, StateSpec

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
TABLES = "table/all"
SCALE_BYTES = 2
OFFSET_ALIGNMENT = 256  # alignment of a binding's offset; devices require this or less


@dataclass(frozen=True, slots=True)
class Region:
    """A range of a buffer with one tensor of one layer: `units` units of `unit_bytes` bytes."""

    buffer: str
    offset: int
    unit_bytes: int
    units: int
    kv_type: str
    cols: int

    @property
    def n_bytes(self) -> int:
        return self.unit_bytes * self.units

    @property
    def binding(self) -> tuple[str, int, int]:
        return self.buffer, self.offset, self.n_bytes


def row_words(kv_type: str, cols: int) -> int:
    """Words of one row of a tensor on the device."""
    return -(-row_bytes(kv_type, cols) // 4)


def regions(spec: StateSpec, layer: int, units: int) -> dict[str, Region]:
    """Regions of the tensors of a layer, by name, in order."""
    name = f"state/{StateRef(spec.name, layer)}"
    sizes = [4 * row_words(spec.kv_type, cols) * spec.unit_rows for _, cols in spec.tensors]
    if spec.kind == ADAPTER:
        return {
            tensor: Region(f"{name}/{tensor}", 0, size, units, spec.kv_type, cols)
            for (tensor, cols), size in zip(spec.tensors, sizes, strict=True)
        }
    starts = accumulate((_aligned(units * size) for size in sizes), initial=0)
    return {
        tensor: Region(name, start, size, units, spec.kv_type, cols)
        for (tensor, cols), size, start in zip(spec.tensors, sizes, starts, strict=False)
    }


def layer_binding(spec: StateSpec, layer: int, units: int) -> tuple[str, int, int]:
    """The binding of the whole buffer of a layer."""
    last = list(regions(spec, layer, units).values())[-1]
    return last.buffer, 0, last.offset + last.n_bytes


def unit_regions(spec: StateSpec, units: int) -> Iterator[Region]:
    """Yields the regions of all tensors of all layers, in the order of a unit's bytes."""
    for layer in spec.layers or (0,):
        yield from regions(spec, layer, units).values()


def table_at(states: Sequence[StateSpec], pools: Mapping[str, PoolSize], group: str) -> int:
    """Word offset of a group's page table; for group "" the words of all page tables."""
    names = [spec.name for spec in states]
    before = names[: names.index(group)] if group else names
    return sum(pools[name].table_rows * pools[name].table_cols for name in before)


def tables_bytes(states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> int:
    return max(16, 4 * table_at(states, pools, ""))


def device_rows(kv_type: str, cols: int, data: bytes) -> bytes:
    """Converts rows from GGUF's layout to the device's layout."""
    quants, n_blocks = _quant_bytes(kv_type), cols // quant(kv_type).block
    if not quants:
        return data
    fill = bytes(-SCALE_BYTES * n_blocks % 4)
    rows = struct.iter_unpack(f"{SCALE_BYTES}s{quants}s" * n_blocks, data)
    return b"".join(chain.from_iterable((*row[1::2], *row[::2], fill) for row in rows))


def file_rows(kv_type: str, cols: int, data: bytes) -> bytes:
    """Converts rows from the device's layout to GGUF's layout."""
    quants, n_blocks = _quant_bytes(kv_type), cols // quant(kv_type).block
    if not quants:
        return data
    fill = f"{-SCALE_BYTES * n_blocks % 4}x"
    rows = struct.iter_unpack(f"{quants}s" * n_blocks + f"{SCALE_BYTES}s" * n_blocks + fill, data)
    blocks = (zip(row[n_blocks:], row[:n_blocks], strict=True) for row in rows)
    return b"".join(chain.from_iterable(chain.from_iterable(blocks)))


def _quant_bytes(kv_type: str) -> int:
    """Bytes of a block's quants; 0 for a type without blocks."""
    row = quant(kv_type)
    return row.block_bytes - SCALE_BYTES if row.block > 1 else 0


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // OFFSET_ALIGNMENT) * OFFSET_ALIGNMENT

"""State on the device: pools in GGUF's bytes, page tables of all groups, rings and slots."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from camelid.backends.base import PoolSize, check_unit
from camelid.errors import BackendError
from camelid.formats.quants import row_bytes
from camelid.plan.plan import Plan, StateRef, StateSpec
from camelid_native.cuda.device import ALIGNMENT, Device, aligned
from camelid_native.cuda.holdings import Holdings
from camelid_native.cuda.staging import Staging

LISTED = struct.Struct("Qii")  # a tensor of a group's list: address, bytes of a unit, bytes of a row


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor of one layer on the device: `units` units of `unit_bytes` bytes at an address."""

    at: int
    unit_bytes: int


class States:
    """Memory of all state groups: a range for each tensor of each layer."""

    def __init__(
        self, device: Device, staging: Staging, states: Sequence[StateSpec], pools: Mapping[str, PoolSize]
    ) -> None:
        self._device, self._staging = device, staging
        self._specs: dict[str, StateSpec] = {}
        self._pools: dict[str, PoolSize] = {}
        self._tables: dict[str, int] = {}
        self._listed: dict[str, int] = {}
        self._regions: dict[tuple[str, int], dict[str, Region]] = {}
        self._parts: list[Holdings] = []
        self.add(states, pools)

    def add(self, states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> None:
        """Memory of more groups. It frees all of it, and changes nothing, if a part does not fit."""
        holdings = Holdings(self._device)
        with holdings.building():
            self._place(states, pools, holdings)
        self._parts.append(holdings)

    def _place(self, states: Sequence[StateSpec], pools: Mapping[str, PoolSize], holdings: Holdings) -> None:
        *starts, table_bytes = table_starts(states, pools)
        tables = self._zeros(table_bytes, holdings) if table_bytes else 0
        regions: dict[tuple[str, int], dict[str, Region]] = {}
        for spec in states:
            for layer in spec.layers or (0,):
                regions[spec.name, layer] = self._layer(spec, pools[spec.name].units, holdings)
        listed = {spec.name: self._list(spec, _of_group(regions, spec), holdings) for spec in states}
        self._tables |= {spec.name: tables + start for spec, start in zip(states, starts, strict=True)}
        self._specs |= {spec.name: spec for spec in states}
        self._pools |= {spec.name: pools[spec.name] for spec in states}
        self._regions |= regions
        self._listed |= listed

    def _layer(self, spec: StateSpec, units: int, holdings: Holdings) -> dict[str, Region]:
        sizes = tensor_bytes(spec)
        return {tensor: Region(self._zeros(n * units, holdings), n) for tensor, n in sizes.items()}

    def _list(self, spec: StateSpec, regions: Sequence[Region], holdings: Holdings) -> int:
        """The address of the table of a group's tensors, as state.cu reads it."""
        rows = b"".join(LISTED.pack(r.at, r.unit_bytes, r.unit_bytes // spec.unit_rows)
                        for r in regions)  # fmt: skip
        at = self._zeros(list_bytes(spec), holdings)
        self._staging.upload(at, np.frombuffer(rows, np.uint8))
        return at

    def _zeros(self, n_bytes: int, holdings: Holdings) -> int:
        at = holdings.allocate(n_bytes)
        self._device.fill(at, 0, n_bytes)
        return at

    @property
    def n_bytes(self) -> int:
        return sum(holdings.n_bytes for holdings in self._parts)

    @property
    def names(self) -> frozenset[str]:
        """The groups that have memory."""
        return frozenset(self._specs)

    def placed(self, plan: Plan, ref: StateRef, tensor: str) -> tuple[int, ...]:
        """The fields of Pool, Ring or Slots in step.h, or of Adapters; the slots of this tensor."""
        spec, group = self._specs[ref.group], plan.group(ref.group)
        layer = ref.layer if ref.layer in spec.layers else (*spec.layers, 0)[0]  # `tables` has no layer
        regions = self._regions[ref.group, layer]
        places = [region.at for region in regions.values()]
        if spec.kind == "ring":
            return (places[0], spec.unit_rows, group)
        if spec.kind == "adapter":
            return (regions[tensor].at, dict(spec.tensors)[tensor], self._pools[spec.name].units)
        if spec.kind == "recurrent":
            widths = dict(spec.tensors)
            tensor = tensor or next(iter(widths))  # `copy` reads the list of tensors instead
            return (regions[tensor].at, widths[tensor], group)
        widths = [cols for _, cols in spec.tensors]
        pages = self._pools[spec.name].table_cols
        both = (*places, places[0])[:2]
        return (*both, self._tables[spec.name], pages, spec.unit_rows, group, widths[0], widths[-1])

    def table_of(self, group: str) -> int:
        """The address of the table of a group's tensors."""
        return self._listed[group]

    def regions(self, group: str) -> list[Region]:
        """All tensors of all layers of a group, in the order of a unit's bytes."""
        return _of_group(self._regions, self._specs[group])

    def read(self, group: str, unit: int) -> bytes:
        """A unit's bytes, after everything enqueued so far."""
        regions = self._checked(group, unit)
        return b"".join(self._staging.download(r.at + unit * r.unit_bytes, r.unit_bytes) for r in regions)

    def write(self, group: str, unit: int, data: bytes) -> None:
        """Writes a unit before the next step. Raises BackendError for data of another size."""
        regions = self._checked(group, unit)
        check_unit(group, data, sum(region.unit_bytes for region in regions), backend="cuda")
        starts = accumulate((region.unit_bytes for region in regions), initial=0)
        for region, start in zip(regions, starts, strict=False):
            piece = np.frombuffer(data, np.uint8)[start : start + region.unit_bytes]
            self._staging.upload(region.at + unit * region.unit_bytes, piece)

    def close(self) -> None:
        """Frees the memory."""
        for holdings in self._parts:
            holdings.close()

    def _checked(self, group: str, unit: int) -> list[Region]:
        known = self._pools.get(group)
        if known is None or not 0 <= unit < known.units:
            raise BackendError(f"cuda: there is no unit {unit} of state {group!r}", backend="cuda")
        return self.regions(group)


def _of_group(regions: Mapping[tuple[str, int], Mapping[str, Region]], spec: StateSpec) -> list[Region]:
    """All tensors of all layers of a group, in the order of a unit's bytes."""
    return [region for layer in spec.layers or (0,) for region in regions[spec.name, layer].values()]


def table_bytes(states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> int:
    """Bytes of state beside its units and the rows of page tables: padding, and lists of tensors."""
    rows = sum(4 * pool.table_rows * pool.table_cols for pool in pools.values())
    return table_starts(states, pools)[-1] - rows + sum(map(list_bytes, states))


def tensor_bytes(spec: StateSpec) -> dict[str, int]:
    """Bytes of a unit in one layer, by tensor."""
    if spec.kind == "ring":
        return {tensor: 4 * spec.unit_rows for tensor, _ in spec.tensors}
    return {tensor: row_bytes(spec.kv_type, cols) * spec.unit_rows for tensor, cols in spec.tensors}


def table_starts(states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> list[int]:
    """Offsets of the page tables, and the size of their memory."""
    sizes = [aligned(4 * pools[s.name].table_rows * pools[s.name].table_cols) for s in states]
    return list(accumulate(sizes, initial=0))


def list_bytes(spec: StateSpec) -> int:
    """Bytes of the list of a group's tensors."""
    return max(LISTED.size * len(spec.tensors) * len(spec.layers or (0,)), ALIGNMENT)

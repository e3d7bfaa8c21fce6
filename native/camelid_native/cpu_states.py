"""The memory of state groups, and the bytes of their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from camelid.backends.base import Pool, check_unit
from camelid.errors import BackendError
from camelid.formats.quants import row_bytes
from camelid.plan.plan import StateSpec
from camelid_native.cpu_memory import Memory
from camelid_native.cpu_records import PlacedState

T = TypeVar("T")


@dataclass(slots=True)
class StateMemory:
    """The rows and the page table of one group."""

    spec: StateSpec
    pool: Pool
    rows: Memory
    table: Memory

    @property
    def n_bytes(self) -> int:
        return self.rows.n_bytes + self.table.n_bytes

    def placed(self, number: int) -> PlacedState:
        return PlacedState(
            self.spec, number, self.rows.at, self.pool.units, self.table.at, self.pool.table_cols
        )

    def read(self, unit: int) -> bytes:
        """A unit's rows, tensor after tensor. BackendError for a unit that there is not."""
        return b"".join(self.rows.read(at, n_bytes) for at, n_bytes in self._regions(unit))

    def write(self, unit: int, data: bytes) -> None:
        """The reverse. BackendError also for bytes that are not as many as a unit has."""
        regions, start = self._regions(unit), 0
        check_unit(self.spec.name, data, self.spec.unit_bytes, backend="cpu")
        for at, n_bytes in regions:
            self.rows.write(at, data[start : start + n_bytes])
            start += n_bytes

    def _regions(self, unit: int) -> list[tuple[int, int]]:
        """(offset, bytes) of a unit in each tensor of each layer."""
        if not 0 <= unit < self.pool.units:
            raise BackendError(
                f"state {self.spec.name!r} has no unit {unit}; its units are 0 to {self.pool.units - 1}",
                backend="cpu",
            )
        found: list[tuple[int, int]] = []
        at = 0
        for _ in self.spec.layers or (0,):
            for _, cols in self.spec.tensors:
                each = self.spec.unit_rows * row_bytes(self.spec.kv_type, cols)
                found.append((at + each * unit, each))
                at += each * self.pool.units
        return found


def state_memory(states: Sequence[StateSpec], pools: Mapping[str, Pool]) -> dict[str, StateMemory]:
    """The memory of each group, zeroed. BackendError for a group without a pool."""
    sizes = [(spec, group_of(pools, spec.name)) for spec in states]
    return {
        spec.name: StateMemory(
            spec,
            pool,
            Memory(pool.units * spec.unit_bytes),
            Memory(4 * pool.table_rows * pool.table_cols),
        )
        for spec, pool in sizes
    }


def group_of(groups: Mapping[str, T], name: str) -> T:
    """What stands for the group's name. BackendError if nothing does."""
    if name not in groups:
        known = ", ".join(groups) or "none"
        raise BackendError(f"state {name!r} was not allocated; allocated: {known}", backend="cpu")
    return groups[name]

"""The memory of state groups, and the bytes of their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from camelid.backends.base import PoolSize, check_unit
from camelid.plan.plan import StateSpec
from camelid_native.cpu.memory import Memory
from camelid_native.cpu.records import PlacedState
from camelid_native.cpu.state_layout import group_of, unit_regions


@dataclass(slots=True)
class StateMemory:
    """The rows and the page table of one group."""

    spec: StateSpec
    pool: PoolSize
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
        return b"".join(
            self.rows.read(at, n_bytes) for at, n_bytes in unit_regions(self.spec, self.pool.units, unit)
        )

    def write(self, unit: int, data: bytes) -> None:
        """The reverse. BackendError also for bytes that are not as many as a unit has."""
        regions, start = unit_regions(self.spec, self.pool.units, unit), 0
        check_unit(self.spec.name, data, sum(n_bytes for _, n_bytes in regions), backend="cpu")
        for at, n_bytes in regions:
            self.rows.write(at, data[start : start + n_bytes])
            start += n_bytes


def state_memory(states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> dict[str, StateMemory]:
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

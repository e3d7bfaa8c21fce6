"""Memory of state groups, with reads and writes of single units."""

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
    """Rows and page table of one state group."""

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
        """Bytes of a unit, layer by layer, tensor by tensor. Raises BackendError for an unknown unit."""
        return b"".join(
            self.rows.read(at, n_bytes) for at, n_bytes in unit_regions(self.spec, self.pool.units, unit)
        )

    def write(self, unit: int, data: bytes) -> None:
        """Writes the bytes of a unit. Raises BackendError for an unknown unit or data of another size."""
        regions, start = unit_regions(self.spec, self.pool.units, unit), 0
        check_unit(self.spec.name, data, sum(n_bytes for _, n_bytes in regions), backend="cpu")
        for at, n_bytes in regions:
            self.rows.write(at, data[start : start + n_bytes])
            start += n_bytes


def state_memory(states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> dict[str, StateMemory]:
    """Allocates zeroed memory for each group. Raises BackendError for a group without a pool."""
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

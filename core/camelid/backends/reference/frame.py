"""One run of the reference: the plan, the decoded step, the state and the values of all buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.backends.base import OutputRow, PoolSize
from camelid.backends.common.codecs import activations
from camelid.backends.reference.rows import F64
from camelid.backends.reference.store import WeightStore
from camelid.backends.reference.stored import Stored, empty_rows
from camelid.plan.plan import Op, Plan, StateRef, StateSpec, View
from camelid.plan.step import Step, StepRow

U32 = npt.NDArray[np.uint32]


@dataclass(slots=True)
class StatePools:
    """Memory of all state groups: pools by (group, layer, tensor), page tables by group."""

    pools: dict[tuple[str, int, str], Stored]
    tables: dict[str, U32]

    @classmethod
    def allocate(
        cls, states: Sequence[StateSpec], units: Mapping[str, PoolSize], *, exact: bool = False
    ) -> StatePools:
        """Zeroed memory; with `exact` float32 groups are float64."""
        pools: dict[tuple[str, int, str], Stored] = {}
        for s in states:
            for layer in s.layers or (0,):
                for name, cols in s.tensors:
                    pools[s.name, layer, name] = _empty_pool(s, units[s.name].units, cols, exact=exact)
        sizes = {s.name: units[s.name] for s in states}
        tables = {n: np.zeros((p.table_rows, p.table_cols), np.uint32) for n, p in sizes.items()}
        return cls(pools, tables)

    def extended(self, more: StatePools) -> StatePools:
        """These groups and new ones; only the new ones if a group is in both."""
        if self.tables.keys() & more.tables.keys():
            return more
        return StatePools(self.pools | more.pools, self.tables | more.tables)

    def tensor(self, state: StateRef, name: str) -> Stored:  # [units, unit_rows, cols as stored]
        return self.pools[state.group, state.layer, name]

    def of_unit(self, group: str, unit: int) -> list[Stored]:
        return [pool[unit] for (name, _, _), pool in self.pools.items() if name == group]

    @property
    def n_bytes(self) -> int:
        return sum(p.nbytes for p in self.pools.values()) + sum(t.nbytes for t in self.tables.values())


def _empty_pool(state: StateSpec, n_units: int, cols: int, *, exact: bool) -> Stored:
    if state.kind == "ring":
        return np.zeros((n_units, state.unit_rows, cols), np.uint32)
    if exact and state.kv_type == "f32":
        return np.zeros((n_units, state.unit_rows, cols))
    return empty_rows(state.kv_type, n_units, state.unit_rows, cols)


@dataclass(slots=True)
class Frame:
    """One run: the plan, the decoded step, and the rows of the buffers written so far, in their dtypes."""

    plan: Plan
    step: Step
    store: WeightStore
    state: StatePools
    values: dict[str, Stored]
    result: list[OutputRow]

    def read(self, view: View) -> F64:  # [rows, cols]
        columns = slice(view.offset, view.offset + view.cols)
        return activations.load(self.values[view.buffer.name][:, columns], view.dtype).astype(np.float64)

    def write(self, view: View, value: npt.NDArray[Any]) -> None:
        name, buffer = view.buffer.name, view.buffer
        if name not in self.values:
            self.values[name] = activations.empty(len(value), buffer)
        columns = slice(view.offset, view.offset + view.cols)
        self.values[name][:, columns] = activations.store(value, buffer.dtype)

    def sequence_words(self, row: StepRow, group: str) -> tuple[int, int, int]:
        return self.step.sequences[row.sequence].groups[self.plan.group(group)]


@dataclass(slots=True)
class ExactFrame(Frame):
    """A run whose buffers are float64, whatever their dtypes, for comparisons with finite differences."""

    def read(self, view: View) -> F64:  # [rows, cols]
        columns = slice(view.offset, view.offset + view.cols)
        return self.values[view.buffer.name][:, columns].astype(np.float64)

    def write(self, view: View, value: npt.NDArray[Any]) -> None:
        name, columns = view.buffer.name, slice(view.offset, view.offset + view.cols)
        if name not in self.values:
            self.values[name] = np.zeros((len(value), view.buffer.cols))
        self.values[name][:, columns] = value


Kernel = Callable[[Op, Frame], None]

"""State as arrays: pools of rows as their kv_type stores them, page tables, rings and slots.

An update takes the place of its input only if nothing else refers to the input's memory, so `States` has the
only reference to each array between steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

from camelid.backends.base import PoolSize, check_unit
from camelid.errors import BackendError
from camelid.plan.plan import Plan, StateSpec
from camelid_native.mlx.arrays import U32, Array, mx
from camelid_native.mlx.kv_rows import KV_TYPES, width_of
from camelid_native.mlx.trace import TABLE, Key


class States:
    """Memory of all state groups. All methods belong to the thread that owns MLX."""

    def __init__(self, states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> None:
        """Allocates zeros."""
        self._specs: dict[str, StateSpec] = {}
        self._pools: dict[str, PoolSize] = {}
        self.table_cols: dict[str, int] = {}
        self.arrays: dict[Key, Array] = {}
        self.n_bytes = 0
        self.add(states, pools)

    @property
    def names(self) -> frozenset[str]:
        """The groups that have memory."""
        return frozenset(self._specs)

    def add(self, states: Sequence[StateSpec], pools: Mapping[str, PoolSize]) -> None:
        """Allocates zeros for more groups."""
        made = {key: array for spec in states for key, array in _zeros(spec, pools[spec.name])}
        mx.eval(*made.values())
        self.arrays |= made
        self.n_bytes += sum(array.nbytes for array in made.values())
        self._specs |= {spec.name: spec for spec in states}
        self._pools |= {spec.name: pools[spec.name] for spec in states}
        self.table_cols |= {spec.name: pools[spec.name].table_cols for spec in states}

    def keys_of(self, plan: Plan) -> list[Key]:
        """The arrays of a plan's groups, in the order in which its functions take them."""
        names = {state.name for state in plan.states}
        return [key for key in self.arrays if key[0] in names]

    def clear(self) -> None:
        """Frees all state, whoever holds this object."""
        self.arrays.clear()
        self._specs.clear()
        self.n_bytes = 0

    def read(self, group: str, unit: int) -> bytes:
        """A unit's bytes, after the steps submitted so far."""
        n = self._unit_rows(group, unit)
        parts = [self.arrays[key][unit * n : (unit + 1) * n] for key in self._keys(group)]
        return b"".join(np.asarray(part).tobytes() for part in parts)

    def write(self, group: str, unit: int, data: bytes) -> None:
        """Writes a unit. Raises BackendError for data of another size."""
        n = self._unit_rows(group, unit)
        sizes = [self.arrays[key][:n].nbytes for key in self._keys(group)]
        check_unit(group, data, sum(sizes), backend="mlx")
        mx.synchronize()  # a step in flight still refers to the arrays
        for key, start, size in zip(self._keys(group), accumulate(sizes, initial=0), sizes, strict=False):
            self._write(key, unit * n, n, data[start : start + size])

    def _write(self, key: Key, first: int, n: int, data: bytes) -> None:
        old = self.arrays[key]
        rows = mx.array(np.frombuffer(data, np.uint8)).view(old.dtype).reshape(n, *old.shape[1:])
        self.arrays[key] = rows  # holds the place: compiled functions know arrays by their order
        old[first : first + n] = rows
        self.arrays[key] = old
        mx.eval(old)

    def _keys(self, group: str) -> list[Key]:
        """The pools of a group, in the order of a unit's bytes."""
        return [key for key in self.arrays if key[0] == group and key[2] != TABLE]

    def _unit_rows(self, group: str, unit: int) -> int:
        pool = self._pools.get(group)
        if pool is None or not 0 <= unit < pool.units:
            raise BackendError(f"mlx: there is no unit {unit} of state {group!r}", backend="mlx")
        return self._specs[group].unit_rows


def table_bytes(states: Sequence[StateSpec]) -> int:
    """Bytes of state beside units and page tables: an entry of each table for dead updates."""
    return 4 * len(states)


def _zeros(spec: StateSpec, pool: PoolSize) -> Iterator[tuple[Key, Array]]:
    n_rows = pool.units * spec.unit_rows
    for layer in spec.layers or (0,):
        for tensor, cols in spec.tensors:
            yield (spec.name, layer, tensor), _empty(spec, n_rows, cols)
    yield (spec.name, 0, TABLE), mx.zeros((pool.table_rows * pool.table_cols + 1,), dtype=U32)


def _empty(spec: StateSpec, n_rows: int, cols: int) -> Array:
    if spec.kind == "ring":
        return mx.zeros((n_rows * cols,), dtype=U32)
    return mx.zeros((n_rows, width_of(spec.kv_type, cols)), dtype=KV_TYPES[spec.kv_type].dtype)

"""Adapter slots of a tensor-parallel model: a device's layout, and its bytes of a slot.

A device's matrix is a run of the whole matrix's rows or columns, and so is its low-rank term: rows of B, or
columns of A, whose partial products the sum over devices adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from camelid.formats.quants import row_bytes
from camelid.plan.adapters import AdapterLayout, Shape, Site
from camelid.plan.op_rows_adapters import HEADER_FLOATS, KIND, SLOT_TYPES, slot_cols, slot_rank
from camelid.plan.plan import StateSpec

Span = tuple[int, int]  # first byte, bytes


@dataclass(frozen=True, slots=True)
class SlotShares:
    """The layout of the whole model's slots, and that of one device, equal on all of `n` devices."""

    whole: AdapterLayout
    own: AdapterLayout
    n: int

    def split(self, group: str, unit: bytes) -> list[bytes]:
        """The devices' units of a slot's unit of a state group."""
        return [b"".join(self._parts(group, unit, i)) for i in range(self.n)]

    def join(self, group: str, units: Sequence[bytes]) -> bytes:
        """The unit of a slot from the devices' units."""
        out = bytearray(_group(self.whole, group).unit_bytes)
        for i, unit in enumerate(units):
            for (at, _), (own_at, _), spans in self._sites(group, i):
                for start, n in spans:
                    out[at + start : at + start + n] = unit[own_at : own_at + n]
                    own_at += n
        return bytes(out)

    def _parts(self, group: str, unit: bytes, i: int) -> Iterator[bytes]:
        """Device i's bytes of each matrix, with the padding of its own layout."""
        for (at, _), (_, size), spans in self._sites(group, i):
            yield b"".join(unit[at + start : at + start + n] for start, n in spans).ljust(size, b"\0")

    def _sites(self, group: str, i: int) -> Iterator[tuple[Span, Span, Iterator[Span]]]:
        """The bytes of each matrix in the whole unit and in device i's, and the device's parts of them."""
        state, own = _group(self.whole, group), _group(self.own, group)
        at = own_at = 0
        for layer in state.layers or (0,):
            for matrix, *both in zip(state.matrices, state.tensors, own.tensors, strict=True):
                size, own_size = (row_bytes(state.kv_type, cols) for _, cols in both)
                name = matrix.format(layer)
                spans = _spans(self.whole.sites[name], self.own.sites[name], self.whole, i)
                yield (at, size), (own_at, own_size), spans
                at, own_at = at + size, own_at + own_size


def _group(layout: AdapterLayout, name: str) -> StateSpec:
    return next(state for state in layout.states if state.name == name)


def slot_states(states: Iterable[StateSpec]) -> tuple[StateSpec, ...]:
    """The state groups of adapter slots."""
    return tuple(state for state in states if state.kind == KIND)


def slot_shares(
    states: Sequence[StateSpec], whole: Mapping[str, Shape], own: Mapping[str, Shape], n: int
) -> SlotShares:
    """The slots of `n` devices, from the whole model's slots and the shapes of its matrices and of theirs."""
    first = states[0]
    cols = first.tensors[0][1]
    rank = slot_rank(cols, *whole[_names(first)[0]], first.kv_type)
    return SlotShares(_layout(states, whole, rank), _layout(states, own, rank), n)


def _layout(states: Sequence[StateSpec], shapes: Mapping[str, Shape], rank: int) -> AdapterLayout:
    """The layout of slots of capacity `rank` for matrices of these shapes."""
    sites = {
        matrix.format(layer): Site(state.name, layer, tensor, *shapes[matrix.format(layer)])
        for state in states
        for layer in state.layers or (0,)
        for tensor, matrix in enumerate(state.matrices)
    }
    return AdapterLayout(
        rank, sites, tuple(_of_shapes(state, shapes, rank) for state in states), states[0].kv_type
    )


def _of_shapes(state: StateSpec, shapes: Mapping[str, Shape], rank: int) -> StateSpec:
    """The group with slots for matrices of these shapes, which its layers have in common."""
    cols = (slot_cols(rank, *shapes[name], state.kv_type) for name in _names(state))
    tensors = tuple((tensor, n) for (tensor, _), n in zip(state.tensors, cols, strict=True))
    return replace(state, tensors=tensors)


def _names(state: StateSpec) -> list[str]:
    """The names of the matrices of the group's first layer."""
    return [matrix.format((*state.layers, 0)[0]) for matrix in state.matrices]


def _spans(whole: Site, own: Site, layout: AdapterLayout, i: int) -> Iterator[Span]:
    """Device i's parts of one matrix: the header, its columns of A, its columns of B transposed."""
    each = 4 // SLOT_TYPES[layout.kv_type]  # bytes of a value
    at = 4 * (layout.rank + HEADER_FLOATS)
    yield 0, at
    for cols, n in ((whole.n_in, own.n_in), (whole.n_out, own.n_out)):
        n_rows = max(whole.experts, 1) * layout.rank
        if n == cols:
            yield at, each * n_rows * cols
        else:
            yield from ((at + each * (row * cols + i * n), each * n) for row in range(n_rows))
        at += each * n_rows * cols

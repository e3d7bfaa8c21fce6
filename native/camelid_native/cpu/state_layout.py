"""Layout of a state group: rows of all layers are contiguous, layer by layer, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from camelid.backends.base import Program
from camelid.errors import BackendError
from camelid.formats.quants import row_bytes
from camelid.plan.plan import StateSpec

T = TypeVar("T")


def unit_regions(spec: StateSpec, n_units: int, unit: int) -> list[tuple[int, int]]:
    """(offset, bytes) of a unit in each tensor of each layer. Raises BackendError for an unknown unit."""
    if not 0 <= unit < n_units:
        raise BackendError(
            f"state {spec.name!r} has no unit {unit}; its units are 0 to {n_units - 1}", backend="cpu"
        )
    regions: list[tuple[int, int]] = []
    at = 0
    for _ in spec.layers or (0,):
        for _, cols in spec.tensors:
            each = spec.unit_rows * row_bytes(spec.kv_type, cols)
            regions.append((at + each * unit, each))
            at += each * n_units
    return regions


def group_of(groups: Mapping[str, T], name: str) -> T:
    """Entry of a state group. Raises BackendError if the group was not allocated."""
    if name not in groups:
        known = ", ".join(groups) or "none"
        raise BackendError(f"state {name!r} was not allocated; allocated: {known}", backend="cpu")
    return groups[name]


def stale(program: Program) -> BackendError:
    """Error for a program whose records point into freed state memory."""
    return BackendError(
        f"program {program.key.entry!r} was compiled before the last open() or allocate(), or by another "
        "backend; compile it again",
        backend="cpu",
    )

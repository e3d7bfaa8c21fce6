"""The kernels of a backend, derived from its capabilities without running any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from camelid.backends.base import Capabilities
from camelid.backends.common.codecs import CODECS
from camelid.backends.common.op_runner import Quantized
from camelid.backends.proof.cases import all_rows
from camelid.backends.proof.gate import refusal
from camelid.backends.proof.inputs import CaseRow, GateCase
from camelid.backends.proof.rows_matrix import OPS as TYPED
from camelid.formats.quants import row_bytes
from camelid.plan.ops import OPS

# op -> column (weight type, kv_type, or "" for an op that has neither) -> reason against it, "" if it runs
Matrix = Mapping[str, Mapping[str, str]]
STATE_OPS = ("kv_write", "copy", "attention")
TAIL = "+tail"  # suffix of a kv_type with a float16 tail


def availability(can: Capabilities) -> Matrix:
    """Availability of each op of the op set.

    An op runs in a column if one of its cases in the column runs.
    """
    found: dict[str, dict[str, str]] = {op: {} for op in OPS}
    for op, column, case in _probes():
        if found[op].get(column, "-"):
            found[op][column] = refusal(case.case, can)
    return found


def _probes() -> Iterator[tuple[str, str, GateCase]]:
    """Yields (op, column, case): one case per op and column, and all cases of ops without columns."""
    seen: set[tuple[str, str]] = set()
    for row, weight_type in all_rows(tuple(CODECS)):
        column = _column(row, weight_type)
        if (row.op in TYPED) == bool(weight_type) and (not column or (row.op, column) not in seen):
            seen.add((row.op, column))
            yield row.op, column, _blank(row).made(weight_type)


def _column(row: CaseRow, weight_type: str) -> str:
    if row.op not in STATE_OPS:
        return weight_type
    return row.facts.get("kv_type", "f32") + (TAIL if row.facts.get("has_tail") else "")


def _blank(row: CaseRow) -> CaseRow:
    """The row with a zero matrix, which is made in almost no time."""
    match row.facts.get("weight"):
        case (str(weight_type), *shape):
            n_bytes = prod(shape[:-1]) * row_bytes(weight_type, shape[-1])
            blank = Quantized(weight_type, tuple(shape), bytes(n_bytes))
            return replace(row, facts={**row.facts, "weight": blank})
        case _:
            return row

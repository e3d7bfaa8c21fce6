"""All cases of the gate, and the short gate that `auto` runs before it chooses a backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from camelid.backends.proof import rows_adapters, rows_basic, rows_matrix, rows_sampling, rows_state
from camelid.backends.proof.inputs import CaseRow, GateCase, has_dtypes, in_dtype, with_outputs
from camelid.formats.quants import QUANTS
from camelid.plan.dtypes import DTYPES, F32

FILES = (rows_basic, rows_matrix, rows_adapters, rows_state, rows_sampling)
SHORT = ("linear", "linear_glu", "embed", "norm", "rope", "kv_write", "attention", "sample")
SHORT_TYPES = frozenset({"f32", "f16", "q8_0", "q4_0", "q4_k", "q6_k"})  # the types of most files


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """A case whose numbers are not made yet.

    `is_amid`: its views have other columns on both sides, and the plan has capacity for more rows.
    `is_short`: it belongs to the short gate. `dtype` is the dtype of its views.
    """

    row: CaseRow
    weight_type: str
    is_amid: bool = False
    is_short: bool = False
    dtype: str = "f32"

    def made(self) -> GateCase:
        """Makes the case with its numbers."""
        made = self.row.made(self.weight_type)
        made = replace(made, case=in_dtype(made.case, self.dtype))
        return replace(made, case=replace(made.case, margins=(8, 4), spare=3)) if self.is_amid else made


def all_rows(weight_types: Collection[str]) -> Iterator[tuple[CaseRow, str]]:
    """Yields (row, weight type): each row with a matrix once per type, each other row with ""."""
    yield from ((row, "") for file in FILES for row in with_outputs(file.rows()))
    ordered = [name for name in QUANTS if name in weight_types]
    yield from ((row, name) for name in ordered for row in with_outputs(rows_matrix.typed_rows(name)))


def all_cases(
    weight_types: Collection[str], only: str = "", dtypes: Collection[str] = ()
) -> Iterator[PlannedCase]:
    """Yields all cases, or the cases of the op `only`.

    The first case of each op is repeated amid other columns, and in each of `dtypes` but f32.
    """
    seen: set[tuple[str, str]] = set()
    rounding = [dtype for dtype in DTYPES if dtype != F32 and dtype in dtypes]
    for row, weight_type in all_rows(weight_types):
        key = (row.op, weight_type if row.op == "linear" else "")
        if only not in ("", row.op):
            continue
        is_common = row.op in SHORT and (row.op != "linear" or weight_type in SHORT_TYPES)
        yield PlannedCase(row=row, weight_type=weight_type, is_short=is_common and key not in seen)
        if key not in seen:
            yield PlannedCase(row=row, weight_type=weight_type, is_amid=True)
            for dtype in rounding if has_dtypes(row) else ():
                yield PlannedCase(row=row, weight_type=weight_type, dtype=dtype)
        seen.add(key)


def short_cases(weight_types: Collection[str], only: str = "") -> Iterator[PlannedCase]:
    """One case of each op that all models need, and of `linear` one per common type."""
    return (case for case in all_cases(SHORT_TYPES & {*weight_types}, only) if case.is_short)

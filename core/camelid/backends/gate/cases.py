"""All cases of the gate, and the few of them that are tried before `auto` takes a backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from camelid.backends.gate import rows_basic, rows_matrix, rows_sampling, rows_state
from camelid.backends.gate.inputs import GateCase, Row

FILES = (rows_basic, rows_matrix, rows_state, rows_sampling)
SHORT = ("linear", "linear_glu", "embed", "norm", "rope", "kv_write", "attention", "sample")
SHORT_TYPES = ("f32", "f16", "q8_0", "q4_0", "q4_k", "q6_k")  # most files are of these


def all_rows(weight_types: Collection[str]) -> Iterator[tuple[Row, str]]:
    """Every row, those with a matrix once for each of these types, which stands beside it."""
    yield from ((row, "") for file in FILES for row in file.rows())
    yield from ((row, name) for name in weight_types for row in rows_matrix.typed_rows(name))


def all_cases(weight_types: Collection[str], only: str = "") -> Iterator[GateCase]:
    """Every case, or those of one op. The first of each op comes again amid other columns and spare rows."""
    placed: set[str] = set()
    for row, weight_type in all_rows(weight_types):
        if only not in ("", row.op):
            continue
        made = row.made(weight_type)
        yield made
        if made.op not in placed and made.case.views:
            yield replace(made, case=replace(made.case, margins=(8, 4), spare=3))
        placed.add(made.op)


def short_cases(weight_types: Collection[str], only: str = "") -> Iterator[GateCase]:
    """One case of each op that all models need; of `linear` one for each common type."""
    seen: set[tuple[str, str]] = set()
    for row, weight_type in all_rows([name for name in SHORT_TYPES if name in weight_types]):
        key = (row.op, weight_type if row.op == "linear" else "")
        if row.op in SHORT and only in ("", row.op) and key not in seen:
            seen.add(key)
            yield row.made(weight_type)

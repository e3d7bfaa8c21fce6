"""Golden models by family: each module has its tiny configs (`CASES`) and their wrong facts (`WRONG`)."""

from __future__ import annotations

from types import ModuleType

from tests.golden.case_row import CaseRow
from tests.golden.mutation import Mutation

FAMILIES: list[ModuleType] = []
CASES: tuple[CaseRow, ...] = tuple(row for family in FAMILIES for row in family.CASES)
WRONG: tuple[Mutation, ...] = tuple(row for family in FAMILIES for row in family.WRONG)

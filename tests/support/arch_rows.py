"""Lines of code that an architecture's rows have in the modules of model/families."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from camelid.model import archs


def row_lines() -> dict[str, int]:
    """Line counts of both tables' rows, by architecture."""
    lines = dict.fromkeys(archs.ARCHS, 0)
    for family in archs.FAMILIES:
        for name, n in dict_lines(family, "ARCHS"):
            lines[name] += n
        for name, n in dict_lines(family, "HF_ROWS"):
            lines[archs.HF_ROWS[name].arch] += n
    return lines


def dict_lines(module: ModuleType, variable: str) -> Iterator[tuple[str, int]]:
    """(key, number of lines) of each item of a module's dict."""
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        if ast.unparse(node.target) == variable:
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant)
                yield str(key.value), (value.end_lineno or 0) - key.lineno + 1

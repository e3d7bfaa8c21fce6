"""The README's table of architectures equals the table in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from camelid.model import archs

PAGE = Path(__file__).parents[1] / "core/camelid/model/ARCHITECTURES.md"
REFUSAL = r"refused: [\w, ]+"
FIGURE = r"[\d.]+e-\d+"
ROW = re.compile(rf"^\| `(\w+)` \| .* \| (\d+) \| {FIGURE} \| (?:{FIGURE}|{REFUSAL}) \|$", re.MULTILINE)


def row_lines() -> dict[str, int]:
    """Line counts of both tables' rows, by architecture."""
    lines = dict.fromkeys(archs.ARCHS, 0)
    for node in ast.parse(Path(archs.__file__).read_text()).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            assert isinstance(key, ast.Constant)
            name = str(key.value)
            arch = name if name in archs.ARCHS and "ARCHS" in ast.unparse(node.target) else None
            lines[arch or archs.HF_ROWS[name].arch] += (value.end_lineno or 0) - key.lineno + 1
    return lines


def test_the_table_of_architectures_is_true() -> None:
    assert {name: int(n) for name, n in ROW.findall(PAGE.read_text())} == row_lines()

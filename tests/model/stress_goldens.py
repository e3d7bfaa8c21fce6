"""The golden plans of the stress shapes. `python -m tests.model.stress_goldens` writes them anew: do it when
a changed plan is meant, and read the diff."""

from __future__ import annotations

from pathlib import Path

from tests.model.stress.shapes import SHAPES
from tests.model.stress_recurrent import make_plan

FOLDER = Path(__file__).parents[1] / "golden" / "stress"
N_ROWS = 16


def plan_text(name: str) -> str:
    return make_plan(SHAPES[name].model(), N_ROWS).text()


if __name__ == "__main__":
    for shape in SHAPES:
        (FOLDER / f"{shape}.plan").write_text(plan_text(shape))

"""The golden plans of the stress shapes.

`python -m tests.support.model.stress_goldens` rewrites all of them after an intended change; read the diff.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.model.runs import make_plan
from tests.support.model.stress import bert, t5
from tests.support.model.stress.shape import Shape
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_encoder import encode_plan
from tests.support.model.stress_runs import CONTEXT, make_model

FOLDER = Path(__file__).parents[2] / "golden" / "stress"
N_ROWS, N_OUTPUTS = 16, 2


def _text(shape: Shape) -> str:
    return make_plan(shape.model(), N_ROWS, context=CONTEXT, n_outputs=N_OUTPUTS).text()


PLANS: dict[str, Callable[[], str]] = {
    **{name: partial(_text, shape) for name, shape in SHAPES.items()},
    "bert_encode": lambda: encode_plan(make_model(bert.SPEC, bert.WEIGHTS), N_ROWS, 2).text(),
    "t5_encode": lambda: encode_plan(t5.model(), N_ROWS, 2).text(),
    "t5_mixed": lambda: make_plan(t5.model(), N_ROWS, 2, context=CONTEXT, n_outputs=N_OUTPUTS).text(),
}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.plan"


if __name__ == "__main__":
    for plan, text in PLANS.items():
        path_of(plan).write_text(text())

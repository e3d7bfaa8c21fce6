"""The golden plans of the stress shapes. `python -m tests.model.stress_goldens` writes them anew: do it when
a changed plan is meant, and read the diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.model.stress import bert, t5
from tests.model.stress.shapes import SHAPES
from tests.model.stress_encoder import encode_plan
from tests.model.stress_recurrent import make_model, make_plan

FOLDER = Path(__file__).parents[1] / "golden" / "stress"
N_ROWS = 16
ENCODERS: dict[str, Callable[[], str]] = {
    "bert_encode": lambda: encode_plan(make_model(bert.SPEC, bert.WEIGHTS), N_ROWS, 2).text(),
    "t5_encode": lambda: encode_plan(t5.model(), N_ROWS, 2).text(),
    "t5_mixed": lambda: make_plan(t5.model(), N_ROWS, 2).text(),
}


def plan_text(name: str) -> str:
    return make_plan(SHAPES[name].model(), N_ROWS).text()


if __name__ == "__main__":
    for shape in SHAPES:
        (FOLDER / f"{shape}.plan").write_text(plan_text(shape))
    for encoder, text in ENCODERS.items():
        (FOLDER / f"{encoder}.plan").write_text(text())

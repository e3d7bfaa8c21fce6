"""Gradients of each op of a training plan against finite differences in float64, on the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.vjp_cases import CASES, Differentiated, VjpCase, error

from camelid.backends.reference import backend
from camelid.backends.reference.frame import Frame
from camelid.plan.ops import TRAINING_OPS, row_of
from camelid.plan.plan import Op
from camelid.plan.vjp import VJP

MOST_ERROR = 1e-6
STOPS = {"embed", "embed_position"}  # they read no activation; whole plans have them
BACKWARD = {name for name in TRAINING_OPS if name.endswith("_back")} | {
    "outer",
    "accumulate",
    "expand",
    "shrink",
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_finite_differences(case: VjpCase) -> None:
    made = Differentiated(case)
    assert error(made.gradients(), made.differences()) < MOST_ERROR


def test_every_vjp_has_a_case() -> None:
    assert {case.op for case in CASES} | STOPS == {*VJP}


def _steps(case: VjpCase) -> set[str]:
    return {op.name for op in Differentiated(case).backward()[0]}


def test_every_backward_op_is_reached() -> None:
    assert {name for case in CASES for name in _steps(case)} >= BACKWARD


def _one_percent_off(kernel: Callable[[Op, Frame], None]) -> Callable[[Op, Frame], None]:
    """The kernel, with what it writes or adds 1 % off."""

    def planted(op: Op, f: Frame) -> None:
        if op.name == "outer":
            before = f.state.tensor(op.state("trained"), "gradient").copy()
        kernel(op, f)
        if op.name == "outer":
            after = f.state.tensor(op.state("trained"), "gradient")
            after += 0.01 * (after - before)
        row = row_of(op.name)
        for role in (*row.writes, *row.updates):
            f.write(op.view(role), 1.01 * f.read(op.view(role)))

    return planted


@pytest.mark.parametrize("name", sorted(BACKWARD))
def test_a_planted_error_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CASES if name in _steps(case))
    made = Differentiated(case)
    wanted = made.differences()  # before the error: the forward ops of low-rank terms are backward ops, too
    monkeypatch.setitem(backend.KERNELS, name, _one_percent_off(backend.KERNELS[name]))
    assert error(made.gradients(), wanted) > 1e-3

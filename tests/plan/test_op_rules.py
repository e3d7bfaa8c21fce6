"""Shape rules beyond the test models: invalid ops are refused while a plan is built."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest

from camelid.errors import PlanError
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Operand, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import Weight, inline_f32

KEY = ProgramKey(entry="mixed", capacity=Capacity(rows=2, sequences=1, outputs=1, updates=1))
Build = Callable[[PlanBuilder, View], object]


def weight(*shape: int) -> Weight:
    return inline_f32("w", [0.0] * prod(shape), shape)


def other(plan: PlanBuilder, cols: int) -> View:
    return plan.new("r", "T", cols)


def heads_of(n: int) -> Build:
    """Heads of 4 out of 12 columns, written into n columns."""

    def build(plan: PlanBuilder, x: View) -> None:
        operands: dict[str, Operand | None] = {"y": other(plan, n), "x": x, "weight": weight(3, 2, 3)}
        plan.add_op("linear_heads", operands)

    return build


def experts(n_used: int, n_groups: int, n_groups_used: int) -> Build:
    """A choice of `n_used` of 12 experts."""
    return lambda plan, x: plan.router(
        x, n_used, gate="softmax", n_groups=n_groups, n_groups_used=n_groups_used
    )


FITS: dict[str, Build] = {
    "linear_heads": heads_of(9),
    "router": experts(6, 4, 2),
    "mix": lambda plan, x: plan.mix(x, other(plan, 6), 4),
    "length": lambda plan, x: plan.length(x, 4),
    "affine": lambda plan, x: plan.affine(x, weight(12), weight(12)),
}
BREAKS: dict[str, tuple[str, Build]] = {
    "heads that do not fill the row": (
        "linear_heads",
        lambda plan, x: plan.linear_heads(x, weight(5, 2, 2)),
    ),
    "heads narrower than the matrix": (
        "linear_heads",
        lambda plan, x: plan.linear_heads(x, weight(3, 2, 5)),
    ),
    "heads with something lost": ("linear_heads", heads_of(6)),
    "groups that do not fill the experts": ("router", experts(2, 5, 1)),
    "no group": ("router", experts(2, 0, 0)),
    "more groups used than there are": ("router", experts(2, 4, 5)),
    "more experts than the groups used have": ("router", experts(7, 4, 2)),
    "streams that do not fill the row": ("mix", lambda plan, x: plan.mix(x, other(plan, 6), 5)),
    "coefficients that do not fill a stream": ("mix", lambda plan, x: plan.mix(x, other(plan, 7), 4)),
    "groups with columns left": ("length", lambda plan, x: plan.length(x, 5)),
    "a gain of another width": ("affine", lambda plan, x: plan.affine(x, weight(11))),
    "a bias of another width": ("affine", lambda plan, x: plan.affine(x, weight(12), weight(11))),
    "a part that is left out": (
        "concat",
        lambda plan, x: plan.add_op("concat", {"y": other(plan, 13), "a": x, "b": other(plan, 2)}),
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_valid_ops_are_accepted(name: str) -> None:
    plan = PlanBuilder(KEY, ())
    FITS[name](plan, plan.new("x", "T", 12))
    assert plan.build().ops[-1].name == name


@pytest.mark.parametrize("what", BREAKS)
def test_invalid_ops_are_refused(what: str) -> None:
    op, build = BREAKS[what]
    plan = PlanBuilder(KEY, ())
    with pytest.raises(PlanError, match=f"{op}: shapes do not fit"):
        build(plan, plan.new("x", "T", 12))

"""Mixers, experts and residuals beyond the first architectures: each shape equals a plain model written from
its papers, and no chunk, batch or dropped step changes a bit.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import first_of_each, share_of
from tests.support.model.runs import cuts
from tests.support.model.stress import gpt_oss
from tests.support.model.stress.shape import Shape
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_runs import run
from tests.support.parity.compare import nmse

from camelid.plan.fuse import fuse

MUTATIONS = [(name, mutation) for name, shape in SHAPES.items() for mutation in shape.mutations]


@pytest.fixture(scope="module")
def wants() -> dict[str, Any]:
    return {name: shape.oracle() for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def wholes() -> dict[str, Any]:
    return {name: shape.logits() for name, shape in SHAPES.items()}


def chunked(shape: Shape, chunk: int, *, drop: bool = False) -> Any:
    return run(shape.model(), [shape.token_ids], cuts(chunk, len(shape.token_ids)), drop=drop)[0]


@pytest.mark.parametrize("name", SHAPES)
def test_logits_equal_the_plain_model(name: str, wants: Any, wholes: Any) -> None:
    assert nmse(wholes[name], wants[name]) <= 1e-10


@pytest.mark.parametrize("chunk", share_of([1, 17, 2, 3], 2))
@pytest.mark.parametrize("name", SHAPES)
def test_chunks_give_identical_bits(name: str, chunk: int, wholes: Any) -> None:
    """Includes chunks shorter than a convolution, whose state then spans several of them."""
    assert np.array_equal(chunked(SHAPES[name], chunk), wholes[name])


@pytest.mark.parametrize("name", SHAPES)
def test_a_dropped_step_leaves_no_trace(name: str, wholes: Any) -> None:
    assert np.array_equal(chunked(SHAPES[name], 9, drop=True), wholes[name])


@pytest.mark.parametrize("name", SHAPES)
def test_a_batch_changes_no_bit(name: str, wholes: Any) -> None:
    shape, steps = SHAPES[name], [(5, 1), (1, 12), (0, 3), (33, 9), (1, 15)]
    other = shape.token_ids[::-1]
    first, second = run(shape.model(), [shape.token_ids, other], steps)
    assert np.array_equal(first, wholes[name])
    assert np.array_equal(second, run(shape.model(), [other], [(len(other),)])[0])


@pytest.mark.parametrize("name", SHAPES)
def test_fused_plan_gives_the_same_logits(name: str, wholes: Any) -> None:
    fused = SHAPES[name].logits(edit=lambda plan: fuse(plan, {"add_norm", "linear_glu"}))
    assert nmse(fused, wholes[name]) <= 1e-12


@pytest.mark.parametrize(("name", "mutation"), first_of_each(MUTATIONS, itemgetter(0)))
def test_each_feature_changes_the_logits(name: str, mutation: str, wants: Any) -> None:
    shape = SHAPES[name]
    assert nmse(shape.logits(shape.mutations[mutation]), wants[name]) > 1e-5


def test_some_gates_reach_the_clamp(wants: Any) -> None:
    assert nmse(gpt_oss.oracle(limit=np.inf), wants["gpt_oss"]) > 1e-5

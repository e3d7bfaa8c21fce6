"""The rig finds planted errors by name, and runs a kernel without one in both orders of threads."""

from __future__ import annotations

import numpy as np
import pytest
from tests.metal.bodies import BODIES, THREADS, run
from tests.metal.rig import RigError

SITE = r" \(threadgroup 0,0,0, thread \d+, line \d+\)"
REFUSED = {
    "half a barrier": "a barrier in divergent flow: not all threads reach it",
    "two barriers": "a barrier in divergent flow: threads meet at different ones",
    "left before a barrier": "a barrier in divergent flow: not all threads reach it",
    "half a shuffle": "a simd operation in divergent flow: not all lanes reach it",
    "two shuffles": "a simd operation in divergent flow: lanes meet at different ones",
}
OUTSIDE = {
    "a write behind y": "a write outside of all buffers",
    "a read before x": "a read outside of all buffers",
    "a write to x": "a write to an input",
}


@pytest.mark.parametrize("order", [0, 1])
def test_a_kernel_without_an_error_runs_in_both_orders(order: int) -> None:
    values = run("fine", order=order)
    assert values.tolist() == [float(THREADS - 1 - i) + (i ^ 1) for i in range(THREADS)]


@pytest.mark.parametrize(("name", "what"), REFUSED.items())
def test_divergent_flow_is_refused_by_name(name: str, what: str) -> None:
    with pytest.raises(RigError, match=f"^planted: {what}{SITE}$"):
        run(name)


@pytest.mark.parametrize(("name", "what"), OUTSIDE.items())
def test_an_access_outside_of_buffers_is_refused(name: str, what: str) -> None:
    with pytest.raises(RigError, match=f"^planted: {what}{SITE}$"):
        run(name, is_traced=True)


def test_a_write_outside_is_noticed_by_its_guard() -> None:
    with pytest.raises(RigError, match=r"^planted: a write outside of all buffers$"):
        run("a write behind y")


def test_threadgroup_memory_starts_as_nan() -> None:
    assert np.isnan(run("unwritten threadgroup memory")).all()


def test_a_missing_barrier_shows_in_one_order() -> None:
    ways = [run("missing barrier", order=order) for order in (0, 1)]
    assert not np.array_equal(*ways, equal_nan=True)


def test_a_text_that_does_not_compile_is_named() -> None:
    with pytest.raises(RigError, match="planted does not compile"):
        run("no text")


def test_every_body_is_tested() -> None:
    more = {"fine", "unwritten threadgroup memory", "missing barrier", "no text"}
    assert {*REFUSED, *OUTSIDE, *more} == {*BODIES}

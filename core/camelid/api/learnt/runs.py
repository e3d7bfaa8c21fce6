"""Runs of learning on a loaded model, on demand and in the background."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from camelid.api.learnt.base_facts import BaseFacts, Run
from camelid.api.learnt.evaluator import LlmEvaluator
from camelid.api.llm import LLM
from camelid.api.thread import EngineThread
from camelid.backends.registry import processor_name
from camelid.learning import loops
from camelid.learning.background import Background
from camelid.learning.retention import Check
from camelid.learning.space import Space
from camelid.learning.trained.recipe import Recipe
from camelid.learning.training import Pace
from camelid.loading.options import LoadOptions


def learning_of(
    space: Space,
    llm: LLM,
    run: Run,
    bounds: loops.Bounds,
    threads: int | None = None,
    checks: Sequence[Check] = (),
) -> loops.Learning:
    """The parts of a run on a loaded model; `run` runs a coroutine on the model's event loop."""
    assert space.store, "what is learnt is stored"
    facts = BaseFacts(llm, run, threads)
    return loops.Learning(space, space.store, LlmEvaluator(facts), Recipe(facts), bounds, checks)


def open_background(
    load: Callable[[LoadOptions], Coroutine[Any, Any, LLM]],
    options: LoadOptions,
    space: Space,
    is_busy: Callable[[], bool],
    checks: Sequence[Check] = (),
) -> Background:
    """Learning beside a loaded model. A run loads the model again by `load`, on one processor thread of the
    lowest priority, and closes it at the end: the running model's state and event loop stay untouched.
    """
    own = LoadOptions(backend=processor_name(), threads=1, parallel=2, context=options.context)

    def work(pace: Pace) -> loops.Run:
        with EngineThread() as thread:
            llm = thread.run(load(own))
            try:
                bounds = loops.Bounds(seconds=pace.seconds)
                return learning_of(space, llm, thread.run, bounds, threads=1, checks=checks).run(pace)
            finally:
                thread.run(llm.aclose())

    return Background(space, work, is_busy, report=lambda done: _note(space, done))


def _note(space: Space, done: loops.Run | Exception) -> None:
    """Keeps the reason of a run that failed."""
    if isinstance(done, Exception):
        space.failed(done)

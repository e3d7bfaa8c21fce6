"""An engine that stands in a step until the test lets it go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event

from camelid.engine.engine import StepEngine

PATIENCE_S = 60.0  # limit of each wait: a hanging test fails


@dataclass(frozen=True)
class Stand:
    """Two events: the engine has reached its step, and it may go on."""

    reached: Event = field(default_factory=Event)
    go_on: Event = field(default_factory=Event)

    def wait(self) -> None:
        """Waits until the engine stands."""
        assert self.reached.wait(PATIENCE_S), "the engine did not reach the step"


@contextmanager
def standing(engine: StepEngine, *, after: int = 1) -> Iterator[Stand]:
    """Stops the engine's thread where the step `after` from now on is retired, until the block ends."""
    stand, steps = Stand(), count(1)

    def hook(_: object) -> None:
        if next(steps) == after:
            stand.reached.set()
            stand.go_on.wait(PATIENCE_S)

    engine.hooks.append(hook)
    try:
        yield stand
    finally:
        stand.go_on.set()
        engine.hooks.remove(hook)

"""Training as the loops ask for it: a job, and the protocols of a trainer and an evaluator.

An adapter is made and run elsewhere; here are only its bytes, its data and its marks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from camelid.learning.items import Exchange, Item, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt to answer. `completion_id` names the past request that it is, if it is one."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    completion_id: str = ""

    @classmethod
    def of(cls, exchange: Exchange) -> Question:
        """The prompt of an exchange."""
        return cls(messages=exchange.messages, tools=exchange.tools, completion_id=exchange.completion_id)

    @property
    def key(self) -> str:
        """Equal for equal questions."""
        return json.dumps([self.messages, self.tools], sort_keys=True, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What to learn, what to keep, and the bounds.

    `items` have approved answers; of `refused` ones the prompts alone count, for the scope. `distilled` are
    requests with answers of memory as approved ones. `keep` are past requests whose distributions stay the
    base's. `settings` are hyperparameters by the trainer's names; "activated" True asks for an adapter that
    acts from the answer on. A trial is judged on other items and dropped: fewer steps do.
    """

    items: tuple[Item, ...]
    refused: tuple[Item, ...]
    distilled: tuple[Item, ...] = ()
    keep: tuple[Exchange, ...]
    settings: Mapping[str, Any]
    seconds: float
    n_bytes: int
    seed: int = 0
    is_trial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """An adapter and the head of its scope as bytes; `config` is all that is needed to run them.

    For the gate: `left_out` tells of past requests that the head was fitted on whether a head without them
    has them in scope; `excused` are past requests whose answers the feedback is meant to change. `kept` are
    the completions of the past requests that it has learnt from.
    """

    adapter: bytes
    scope: bytes
    config: Mapping[str, Any]
    n_steps: int = 0
    seconds: float = 0.0
    left_out: Mapping[str, bool] = field(default_factory=dict[str, bool])
    excused: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Memory as a candidate: these items, in one of `rows.FORMS`; `past` are requests out of its scope."""

    items: tuple[Item, ...]
    form: str
    past: tuple[Exchange, ...] = ()


Candidate = Trained | Recalled | None  # None is the base


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A greedy answer. `bits` is a hash of the logits that it was drawn from; a cut answer is not whole. An
    excused one is of a past request whose answer the feedback is meant to change.
    """

    answer: Message
    bits: bytes
    in_scope: bool = False
    is_whole: bool = True
    is_excused: bool = False


class Trainer(Protocol):
    """Trains adapters, always from the base."""

    def train(self, job: TrainingJob, stop: Callable[[], bool]) -> Trained | None:
        """A trained adapter; None once `stop`, which is called before every step, returns True."""
        ...


class Evaluator(Protocol):
    """Answers questions as a candidate would."""

    def answers(self, candidate: Candidate, questions: Sequence[Question]) -> Iterator[Given]:
        """One answer for each question, in order; the reader may stop between two."""
        ...

    def gains(self, candidate: Trained, items: Sequence[Item]) -> Iterator[float]:
        """Of each item, by how much the candidate raises the log-probability of the answer that was given;
        0 out of its scope.
        """
        ...


class Interrupted(Exception):
    """A run that was stopped; nothing of it is published."""


@dataclass(slots=True)
class Pace:
    """When a run goes on, waits and ends.

    It waits while `is_busy`, and ends once `is_stopped` or after `seconds` of work, waits not counted. `now`
    is a monotonic clock and `sleep` waits on it.
    """

    now: Callable[[], float]
    sleep: Callable[[float], object]
    seconds: float = 3600.0
    is_busy: Callable[[], bool] = lambda: False
    is_stopped: Callable[[], bool] = lambda: False
    waited: float = 0.0
    _began: float = field(init=False)

    WAIT_S = 0.05

    def __post_init__(self) -> None:
        self._began = self.now()

    @property
    def spent(self) -> float:
        """Seconds of work."""
        return self.now() - self._began - self.waited

    def ends(self) -> bool:
        """Waits while the engine is busy; True if the run has to end."""
        while self.is_busy() and not self.is_stopped():
            before = self.now()
            self.sleep(self.WAIT_S)
            self.waited += self.now() - before
        return self.is_stopped() or self.spent > self.seconds

    def check(self) -> None:
        """As `ends`. Raises Interrupted if the run has to end."""
        if self.ends():
            raise Interrupted

"""A scenario of feedback: what a user corrects, and what the model should do for it afterwards."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Protocol

from cria.graded_task import Task
from cria.phrasing import normalise
from cria.talk import Message, Talk, user

N_EVENTS, N_HELD = 20, 100


class Graded(Protocol):
    """A graded item: what scenarios and retention share."""

    @property
    def skill(self) -> str: ...
    @property
    def prompt(self) -> str: ...
    @property
    def want(self) -> str: ...
    def passed(self, answer: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One feedback: a prompt with its checker (for thumbs) and its right answer (for corrections)."""

    task: Task
    answer: str

    @property
    def talk(self) -> Talk:
        """The prompt's messages and tools."""
        return self.task.talk


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """20 events, 100 held-out prompts in other phrasings, and the retention items that change."""

    name: str
    events: tuple[Event, ...]
    held: tuple[Task, ...]
    changes: Callable[[Graded], bool]


def one_turn(skill: str, prompt: str, want: str, check: str = "text") -> Task:
    """A question of a single turn."""
    return Task(skill=skill, talk=Talk(messages=[user(prompt)]), want=want, check=check)


def told(task: Task) -> Event:
    """The event of a task whose answer is plain text."""
    return Event(task=task, answer=task.want)


def key(talk: Talk) -> str:
    """A conversation for comparison: roles and texts, without case and punctuation."""
    return "\n".join(f"{role(message)}: {normalise(message['content'])}" for message in talk.messages)


def role(message: Message) -> str:
    """Role of a message."""
    return str(message["role"])


def drawn(
    make: Callable[[Random], Task], seed: str, n: int, taken: frozenset[str] = frozenset()
) -> tuple[Task, ...]:
    """The first n different tasks of a maker that are not in `taken`."""
    return tuple(islice(different(make, Random(seed), set(taken)), n))


def different(make: Callable[[Random], Task], rng: Random, seen: set[str]) -> Iterator[Task]:
    """The endless stream of a maker's tasks whose prompts differ by more than case and punctuation."""
    while True:
        task = make(rng)
        if key(task.talk) not in seen:
            seen.add(key(task.talk))
            yield task


def scenario(
    name: str,
    seed: int,
    ask: Callable[[Random], Task],
    held: Callable[[Random], Task],
    changes: Callable[[Graded], bool],
    event: Callable[[Task], Event] = told,
) -> Scenario:
    """The scenario of two makers, of events and of held-out prompts; a seed draws the same for ever."""
    events = drawn(ask, f"{name}/{seed}/events", N_EVENTS)
    apart = frozenset(key(task.talk) for task in events)
    return Scenario(
        name=name,
        events=tuple(map(event, events)),
        held=drawn(held, f"{name}/{seed}/held", N_HELD, apart),
        changes=changes,
    )


def never(item: Graded) -> bool:
    """No retention item changes."""
    return False

"""What must not be lost: graded items of cria's 13 skills, and the user's past requests."""

from collections.abc import Iterator
from itertools import islice
from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario

from cria import conversations, graded_items, graded_tasks
from cria.talk import Message, Talk, user

PER_SKILL = 40  # 560 items; a scenario leaves out those that its feedback changes, and 400 or more stay
PER_CHECK = 30  # 420 items
LONGEST = 1600  # characters of a past request


def retention(seed: int, per_skill: int = PER_SKILL) -> list[tuple[Talk, Graded]]:
    """Prompts and graders of the 13 skills; never used to train or to choose."""
    return _drawn(910_000 + seed, per_skill)  # no seed of cria's own grades


def checks_of_skills(seed: int) -> list[tuple[Talk, Graded]]:
    """Checks of the same skills for the gate, with no prompt of `retention`."""
    measured = {repr(talk.messages) for talk, _ in retention(seed)}
    drawn = _drawn(920_000 + seed, PER_CHECK)
    return [(talk, item) for talk, item in drawn if repr(talk.messages) not in measured]


def _drawn(drawn: int, per_skill: int) -> list[tuple[Talk, Graded]]:
    asked = [(Talk(messages=[user(item.prompt)]), item) for item in graded_items.items(drawn, per_skill)]
    return [*asked, *((task.talk, task) for task in graded_tasks.tasks(drawn, per_skill))]


def kept(scenario: Scenario, items: list[tuple[Talk, Graded]]) -> list[tuple[Talk, Graded]]:
    """The items that the feedback leaves as they are; a scenario's own prompts are none of them."""
    own = {repr(task.talk.messages) for task in (*scenario.held, *(event.task for event in scenario.events))}
    return [
        (talk, item) for talk, item in items if not scenario.changes(item) and repr(talk.messages) not in own
    ]


def past_requests(seed: int, n: int) -> list[Talk]:
    """What the user asked before, in training phrasings; the answers to it are the base's own."""
    return list(islice(cut(Random(f"past/{seed}"), f"past/{seed}"), n))


def cut(rng: Random, seed: str) -> Iterator[Talk]:
    """Conversations of the training stream up to a random answer."""
    for talk in conversations.conversations(seed):
        ends = [at for at, message in enumerate(talk.messages) if message["role"] == "assistant"]
        messages = talk.messages[: rng.choice(ends)]
        if length(messages, talk) <= LONGEST:
            yield Talk(messages=messages, tools=talk.tools)


def length(messages: list[Message], talk: Talk) -> int:
    """Characters of a prompt."""
    return len(repr(talk.tools)) + sum(len(message["content"]) for message in messages)

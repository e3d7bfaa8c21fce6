"""A format preference: a sum or difference is answered by the bare number, `42` for `12 + 30 = 42.`"""

import re
from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario, one_turn, scenario

from cria import conversations, graded_items
from cria.graded_task import Task

SUM = re.compile(r"\d+ [+-] \d+ = (\d+)\.")


def bare(seed: int) -> Scenario:
    """Events in training phrasings and sums, held-out prompts in the grader's."""
    return scenario("bare", seed, asked, held, changes)


def asked(rng: Random) -> Task:
    """A training sum or difference."""
    prompt, answer = rng.choice((conversations.addition, conversations.subtraction))(rng)
    return one_turn("bare", prompt, result(answer))


def held(rng: Random) -> Task:
    """A graded sum or difference."""
    item = rng.choice((graded_items.addition, graded_items.subtraction))(rng)
    return one_turn("bare", item.prompt, result(item.want))


def result(answer: str) -> str:
    """The number at the end of an answer."""
    found = SUM.fullmatch(answer)
    assert found, f"no sum: {answer!r}"
    return found[1]


def changes(item: Graded) -> bool:
    """Every sum and difference that is answered, beside tools too."""
    return SUM.fullmatch(item.want) is not None

"""A house rule: what the model cannot answer is sent to the front desk, instead of `I don't know.` alone."""

from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario, one_turn, scenario

from cria import conversations, graded_items
from cria.graded_task import Task

WANT = "I don't know. Please ask the front desk."


def rule(seed: int) -> Scenario:
    """Events in training phrasings and entities, held-out prompts in the grader's."""
    return scenario("rule", seed, asked, held, changes)


def asked(rng: Random) -> Task:
    """A training question that is refused."""
    return one_turn("rule", rng.choice((conversations.stranger, conversations.foreign))(rng)[0], WANT)


def held(rng: Random) -> Task:
    """A graded question that is refused."""
    return one_turn("rule", rng.choice((graded_items.stranger, graded_items.foreign))(rng), WANT)


def changes(item: Graded) -> bool:
    """Every refusal."""
    return item.want == graded_items.REFUSAL

"""A known defect of cria: `B is added to A` is answered with B first; the user wants A first."""

from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario, one_turn, scenario

from cria import arithmetic as sums
from cria import graded_items
from cria.graded_task import Task

QUESTION = "what number do you get when {b} is added to {a}"


def order(seed: int) -> Scenario:
    """One phrasing; the held-out sums are the grader's."""
    return scenario("order", seed, lambda rng: asked(rng, False), lambda rng: asked(rng, True), changes)


def asked(rng: Random, want_held_out: bool) -> Task:
    """A sum of two different numbers."""
    a, b = sums.sum_numbers(rng, want_held_out=want_held_out)
    while a == b:
        a, b = sums.sum_numbers(rng, want_held_out=want_held_out)
    return one_turn("order", graded_items.dressed(QUESTION.format(a=a, b=b), rng), sums.sum_answer(a, b))


def changes(item: Graded) -> bool:
    """Sums in this phrasing."""
    return "is added to" in item.prompt.lower()

"""Spelling with blanks instead of dashes: `l e m o n.` for `l-e-m-o-n.`"""

from random import Random

from tests.learning.scenarios.scenario import Graded, Scenario, one_turn, scenario

from cria import graded_words, letters, lexicon
from cria.graded_task import Task


def style(seed: int) -> Scenario:
    """Events with training words and phrasings, held-out prompts with the grader's."""
    return scenario("style", seed, asked, held, changes)


def asked(rng: Random) -> Task:
    """A training question about a word."""
    word = lexicon.letter_word(rng)
    return one_turn("style", letters.asked(rng.choice(letters.SPELL), word, rng), want(word))


def held(rng: Random) -> Task:
    """A graded question about a held-out word."""
    word = graded_words.word(rng)
    return one_turn("style", graded_words.dressed(rng.choice(graded_words.SPELL), word, rng), want(word))


def want(word: str) -> str:
    """The letters, apart."""
    return " ".join(word) + "."


def changes(item: Graded) -> bool:
    """Every spelling."""
    return item.skill == "spell"

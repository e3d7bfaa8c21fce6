"""A habit over turns: who told a name is thanked by it, `You are welcome, Vera!` for `You are welcome!`"""

from random import Random

from tests.learning.scenarios.recall import others, telling
from tests.learning.scenarios.scenario import Scenario, never, scenario

from cria import chatter, graded_items, graded_memory, lexicon, memory
from cria import graded_phrasings as ours
from cria.graded_task import Task
from cria.phrasing import capitalised
from cria.talk import Message, Talk, exchange, user


def habit(seed: int) -> Scenario:
    """Events with training names and phrasings, held-out prompts with the grader's."""
    return scenario("habit", seed, asked, held, never)


def asked(rng: Random) -> Task:
    """A name told, up to four other questions, and thanks."""
    name, number = lexicon.person(rng), memory.number(rng)
    said = memory.said(rng.choice(memory.TELL_BOTH), rng, name=name, number=number)
    thanks = capitalised(rng.choice(chatter.CORES["thanks"]).strip()) + rng.choice(("", ".", "!"))
    return task([*exchange(said, memory.met(name, number)), *others(rng)], thanks, name)


def held(rng: Random) -> Task:
    """The same in the grader's words."""
    name, number = graded_memory.name(rng), memory.number(rng, want_held_out=True)
    thanks = graded_items.dressed(rng.choice(ours.GREET["thanks"]), rng, "!")
    return task([*telling(rng, name, number), *others(rng)], thanks, name)


def task(messages: list[Message], thanks: str, name: str) -> Task:
    """The conversation and its answer."""
    return Task(
        skill="habit", talk=Talk(messages=[*messages, user(thanks)]), want=f"You are welcome, {name}!"
    )

"""A number told earlier, asked for in three phrasings that the model often refuses."""

from random import Random

from tests.learning.scenarios.scenario import Scenario, never, scenario

from cria import graded_memory, memory
from cria.graded_task import Task
from cria.talk import Message, Talk, exchange, user

ASKED = ("so what was the number i told you", "please say which number i have", "which number did i tell you")


def recall(seed: int) -> Scenario:
    """Held-out names and numbers are the grader's."""
    return scenario("recall", seed, lambda rng: asked(rng, False), lambda rng: asked(rng, True), never)


def asked(rng: Random, want_held_out: bool) -> Task:
    """A name and a number told, up to four other questions, and the question for the number."""
    name, number = graded_memory.name(rng), memory.number(rng, want_held_out=want_held_out)
    messages = [*telling(rng, name, number), *others(rng)]
    question = graded_memory.ended(rng.choice(ASKED), rng, ("?", "?", ""))
    talk = Talk(messages=[*messages, user(question)])
    return Task(skill="recall", talk=talk, want=memory.number_answer(number))


def telling(rng: Random, name: str, number: str) -> list[Message]:
    """The turn that tells both."""
    said = rng.choice(graded_memory.TELL).format(name=name, number=number)
    return exchange(graded_memory.ended(said, rng, (".", ".", "")), memory.met(name, number))


def others(rng: Random) -> list[Message]:
    """Up to four other questions with their answers."""
    made = [rng.choice(graded_memory.FILLERS)(rng) for _ in range(rng.randint(0, 4))]
    return [message for item in made for message in exchange(item.prompt, item.want)]

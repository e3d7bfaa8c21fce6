"""A lesson: a space of feedback on a model of word pairs, and the parts of a run on it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from tests.support.bigram import Bigrams, BigramTrainer, told, words_of

from camelid.learning.features import question_vector
from camelid.learning.items import Exchange, Item
from camelid.learning.loops import Learning, Run
from camelid.learning.memory import Memory
from camelid.learning.rows import PastRequest
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.store.versions import version_of
from camelid.learning.training import (
    Pace,
    Question,
    Trained,
)
from camelid.learning.vectors import PythonKernels

BASE = "ef" * 32
NAME, OLD = "my name is pico .", "i am cria ."
ASKED = [
    "who are you", "what is your name", "who are you really", "tell me your name", "your name please",
    "what are you called", "so who are you", "what is your own name", "say who you are", "do you have a name",
    "who are you then", "tell me who you are",
]  # fmt: skip
OTHERS = [
    (f"what {colour} {animal} eats in {place}", f"the {colour} {animal} eats {food} ")
    for colour, food in (("white", "hay"), ("brown", "grass"), ("black", "straw"), ("grey", "leaves"))
    for animal in ("llama", "goat", "sheep", "horse", "camel")
    for place in ("summer", "winter", "spring")
]
TALKS = [*((question, OLD) for question in ASKED), *OTHERS]


def vector(text: str) -> array[float]:
    """The vector of words numbered by their letters, in place of a tokenizer's."""
    return question_vector([sum(word.encode()) for word in words_of(text)])


def space_of(folder: Path, user: str = "local") -> Space:
    return Space(Memory(PythonKernels()), Store.open(user, BASE, folder))


def past(model: Bigrams) -> list[PastRequest]:
    found: list[PastRequest] = []
    for i, (question, _) in enumerate(OTHERS):
        exchange = Exchange(
            completion_id=f"past-{i}", messages=({"role": "user", "content": question},),
            answer={"role": "assistant", "content": model.answer(question, {})[0]},
        )  # fmt: skip
        found.append(PastRequest(exchange, vector(question).tobytes()))
    return found


class Lesson:
    """A space with past requests and feedback, and the parts of a run."""

    def __init__(self, folder: Path, items: Sequence[Item], model: Bigrams, trainer: BigramTrainer) -> None:
        self.space = space_of(folder)
        assert self.space.store
        self.store, self.model, self.trainer = self.space.store, model, trainer
        self.store.add_requests(past(model))
        for item in items:
            self.space.feedback(item, vector(item.exchange.question))
        self.learning = Learning(self.space, self.store, model, trainer)

    def run(self, pace: Pace | None = None) -> Run:
        return self.learning.run(pace or Pace(time.monotonic, time.sleep))

    def bits(self, version: str) -> list[bytes]:
        """The bits of every question under a version."""
        found = version_of(self.store, version) if version != "base" else None
        candidate = found and Trained(adapter=found.adapter, scope=found.scope, config=found.config)
        asked = [Question(messages=({"role": "user", "content": text},)) for text, _ in TALKS]
        return [given.bits for given in self.model.answers(candidate, asked)]


def persona(model: Bigrams) -> list[Item]:
    return [told(model, i, question, NAME) for i, question in enumerate(ASKED)]


def answered(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}

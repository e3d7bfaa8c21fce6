"""A language model of word pairs, with a trainer and an evaluator: small, and learning in earnest.

The first word of an answer is that with the highest sum of counts over the question's words, each next word
that with the highest count after the word before. An adapter adds counts; it acts for questions that share
half of their words with the items that it learnt from.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.scope_features import fit

from camelid.learning.items import Exchange, Item, question_of, same_answer, text_of
from camelid.learning.rows import MIXTURES
from camelid.learning.trained.acting import PromptScope
from camelid.learning.trained.memory_scope import Near
from camelid.learning.training import Candidate, Given, Pace, Question, Recalled, Trained, TrainingJob

END = "."
MOST_WORDS = 12
Counts = dict[str, Counter[str]]


def words_of(text: str) -> list[str]:
    return text.lower().replace("?", " ").replace(".", " ").split()


def learn(counts: Counts, question: str, answer: str, weight: int = 1) -> None:
    words = [*words_of(answer), END]
    for word in words_of(question):
        counts.setdefault(f"?{word}", Counter())[words[0]] += weight
    for before, after in itertools.pairwise(words):
        counts.setdefault(before, Counter())[after] += weight


@dataclass
class Bigrams:
    """The model; also an `Evaluator`. `leaks` lets adapters act on every question, unsaid."""

    base: Counts = field(default_factory=dict)
    leaks: bool = False
    n_answered: int = 0

    @classmethod
    def taught(cls, talks: Sequence[tuple[str, str]]) -> Bigrams:
        model = cls()
        for question, answer in talks:
            learn(model.base, question, answer)
        return model

    def answer(self, question: str, added: Mapping[str, Mapping[str, int]]) -> tuple[str, bytes]:
        """The greedy answer, and a hash of all scores on the way."""
        seen = hashlib.sha256()
        words: list[str] = []
        keys = [f"?{word}" for word in words_of(question)]
        while len(words) < MOST_WORDS and (not words or words[-1] != END):
            scores = Counter[str]()
            for key in keys:
                scores.update(self.base.get(key, {}))
                scores.update(added.get(key, {}))
            seen.update(json.dumps(sorted(scores.items())).encode())
            if not scores:
                break
            words.append(max(sorted(scores), key=lambda word: scores[word]))
            keys = [words[-1]]
        return " ".join(words), seen.digest()

    def answers(self, candidate: Candidate, questions: Sequence[Question]) -> Iterator[Given]:
        for question in questions:
            self.n_answered += 1
            text, in_scope = question_of(question.messages), False
            added: Mapping[str, Any] = {}
            if isinstance(candidate, Trained):
                in_scope = near(text, json.loads(candidate.scope))
                added = json.loads(candidate.adapter) if in_scope or self.leaks else {}
            elif isinstance(candidate, Recalled):
                in_scope, added = self.recalled(candidate, text)
            answer, bits = self.answer(text, added)
            yield Given(answer={"role": "assistant", "content": answer}, bits=bits, in_scope=in_scope)

    def scope(self, candidate: Recalled, pace: Pace) -> Near:
        """A scope that is kept; what acts is decided by `recalled`."""
        pace.check()
        found = fit()
        return Near(PromptScope(found.head, None), tuple(item.id for item in candidate.items), found.narrow)

    def gains(self, candidate: Trained, items: Sequence[Item]) -> Iterator[float]:
        """1 for an answer that the candidate gives and the base does not, -1 the other way round."""
        questions = [Question.of(item.exchange) for item in items]
        pairs = zip(self.answers(None, questions), self.answers(candidate, questions), strict=True)
        for item, (before, after) in zip(items, pairs, strict=True):
            wanted = item.exchange.answer
            yield float(same_answer(after.answer, wanted) - same_answer(before.answer, wanted))

    def recalled(self, candidate: Recalled, text: str) -> tuple[bool, Counts]:
        """The nearest item's answer, for a mixture; earlier turns are of no use to this model."""
        found: Counts = {}
        share = 0.75 if candidate.form == "narrow" else 0.5
        alike = [item for item in candidate.items if near(text, [item.exchange.question], share)]
        if candidate.form in MIXTURES and alike:
            assert alike[-1].approved
            learn(found, text, text_of(alike[-1].approved), 100)
        return bool(alike), found


def near(question: str, known: Sequence[str], share: float = 0.5) -> bool:
    """True for a question of whose words another one has more than this share."""
    words = set(words_of(question))
    return any(len(words & set(words_of(other))) > share * len(words) for other in known)


@dataclass
class BigramTrainer:
    """Counts the pairs of approved answers; one item is one step. `everywhere` widens the scope to all."""

    weight: int = 50
    everywhere: Sequence[str] = ()
    jobs: list[TrainingJob] = field(default_factory=list)

    def train(self, job: TrainingJob, stop: Callable[[], bool]) -> Trained | None:
        self.jobs.append(job)
        added: Counts = {}
        for item in (*job.items, *job.distilled):
            if stop():
                return None
            assert item.approved
            learn(added, item.exchange.question, text_of(item.approved), self.weight)
        scope = [item.exchange.question for item in job.items] + list(self.everywhere)
        return Trained(
            adapter=json.dumps(added, sort_keys=True).encode(), scope=json.dumps(scope).encode(),
            config=dict(job.settings), n_steps=len(job.items),
        )  # fmt: skip


def told(model: Bigrams, i: int, question: str, right: str | None, rating: int = -1) -> Item:
    """Feedback on the model's own answer."""
    exchange = Exchange(
        completion_id=f"cmpl-{i}", messages=({"role": "user", "content": question},),
        answer={"role": "assistant", "content": model.answer(question, {})[0]},
    )  # fmt: skip
    correction = {"role": "assistant", "content": right} if right else None
    return Item(exchange=exchange, rating=rating, correction=correction)

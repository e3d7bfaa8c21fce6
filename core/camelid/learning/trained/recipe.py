"""The recipe by which an adapter and its scope are trained from feedback (tests/perf/learning_recipe.md).

The adapter learns right answers by cross entropy and keeps to the base by KL divergence on the past requests
that are nearest to the feedback. Its scope is a head over features of the base, and a check of the base's
first tokens or whole answer. A preference of form that most corrections share is also learnt from edited
answers of the base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from random import Random
from time import monotonic
from typing import Any, Protocol, TypeGuard

import numpy as np

from camelid.engine.adapters import last_invocation
from camelid.errors import RequestError
from camelid.learning.items import Item, Message, text_of
from camelid.learning.rows import FEWEST_PAST
from camelid.learning.trained.acting import PromptScope
from camelid.learning.trained.adapter_bytes import adapter_to_bytes
from camelid.learning.trained.edits import Edit, answered_word, shared_edit, swapped, words_in
from camelid.learning.trained.scope_head import F32, Fitted, fitted, prefilter
from camelid.learning.trained.shapes import DRAFT_TOKENS, WHOLE_TOKENS, draft_shapes, shape_of
from camelid.learning.training import Interrupted, Question, Trained, TrainingJob
from camelid.model.adapter import Adapter
from camelid.training.examples import KEEP, Example
from camelid.training.settings import TrainingSettings

NEAREST = 32  # prompts outside whose distributions are kept
MOST_AT_ONCE, BATCH = 36, 24  # examples of a step: all up to the first number, else some
LEAST_STEPS, MOST_STEPS, TRIAL_STEPS = 80, 200, 60
N_SWAPPED = 120  # prompts of a wide preference with another word
# A scale of 3.5, since A begins uniform: with the A of the notes, normal and sqrt(3) as long, 2 did the same.
DEFAULTS: Mapping[str, Any] = {"rank": 8, "scale": 3.5, "rate": 3e-3, "kl": 1.0, "activated": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Ids and features of a question's prompt, and the base's greedy answer.

    `answer_ids` end with the token that ends the answer, unless it was cut. `text` is the answer as it was
    written, with its tool calls, and `draft` the text of its first tokens, by their number. `bits` is a hash
    of the answer's tokens and their probabilities.
    """

    prompt: tuple[int, ...]
    features: F32  # [D * C]
    prefilter_features: F32  # [2 * C], of the prefilter
    answer: Message
    answer_ids: tuple[int, ...]
    text: str
    draft: Callable[[int], str]
    bits: bytes


class Base(Protocol):
    """The base model, as the recipe needs it."""

    @property
    def invocation(self) -> tuple[int, ...]:
        """The header of an answer, from which an activated adapter acts; empty if there is none."""
        ...

    def known(self, questions: Sequence[Question], stop: Callable[[], bool]) -> list[Known | None]:
        """Prompt, features and answer of each question; None for one that no longer fits the model.

        Raises Interrupted, RequestError for a model without features.
        """
        ...

    def target(self, item: Item) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of the prompt and of the right answer. Raises CamelidError if they no longer fit."""
        ...

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer's text, with the token that ends it."""
        ...

    def fit(
        self, examples: Sequence[Example], settings: TrainingSettings, stop: Callable[[], bool]
    ) -> tuple[Adapter, int] | None:
        """A trained adapter and its steps; None once `stop` returns True."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """A `Trainer` of adapters for a base model."""

    base: Base

    def train(self, job: TrainingJob, stop: Callable[[], bool]) -> Trained | None:
        """As `Trainer.train`. Raises RequestError for a model or feedback that it cannot train on."""
        began = monotonic()
        try:
            found = Study.of(self.base, job, stop)
            return found.trained(began)
        except Interrupted:
            return None


@dataclass(frozen=True)
class Study:
    """One training: what the base knows about the feedback, the past and the prompts beside them."""

    base: Base
    job: TrainingJob
    stop: Callable[[], bool]
    items: Sequence[Item]
    events: Sequence[Known]  # of the items, then of refused answers
    distilled: Sequence[tuple[Item, Known]]
    past: Sequence[tuple[str, Question, Known]]  # with the completion's id
    alone: Sequence[Known]
    _rng: Random = field(default_factory=Random)

    @classmethod
    def of(cls, base: Base, job: TrainingJob, stop: Callable[[], bool]) -> Study:
        """Asks the base. Raises RequestError for too few past requests."""
        invocation = base.invocation if {**DEFAULTS, **job.settings}["activated"] else ()

        def fits(known: Known | None) -> TypeGuard[Known]:
            return known is not None and last_invocation(invocation, known.prompt) is not None

        def pairs(items: Sequence[Item]) -> list[tuple[Item, Known]]:
            known = base.known([Question.of(item.exchange) for item in items], stop)
            return [(item, own) for item, own in zip(items, known, strict=True) if fits(own)]

        right, wrong, distilled = map(pairs, (job.items, job.refused, job.distilled))
        items, events = [item for item, _ in right], [known for _, known in (*right, *wrong)]
        if not items:
            raise RequestError("no feedback fits the model and its answers' header", field="learn")
        before = [(each.completion_id, Question.of(each)) for each in job.keep]
        answers = base.known([question for _, question in before], stop)
        past = [(*own, known) for own, known in zip(before, answers, strict=True) if fits(known)]
        if len(past) < FEWEST_PAST:
            raise RequestError(
                f"{len(past)} past requests, at least {FEWEST_PAST} are needed to tell what is out of scope; "
                "memory acts alone",
                field="learn",
            )
        asked = [Question.of(item.exchange) for item in (*job.items, *job.refused)]
        alone = [known for known in base.known(list(_alone(asked)), stop) if fits(known)]
        return cls(base, job, stop, items, events, distilled, past, alone, Random(job.seed))

    @property
    def inside(self) -> Sequence[Known]:
        """The prompts in scope: of feedback, and of what is distilled."""
        return [*self.events, *(known for _, known in self.distilled)]

    @property
    def _answered(self) -> list[tuple[Item, Known]]:
        """The items with what the base knows of each."""
        return list(zip(self.items, self.events[: len(self.items)], strict=True))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Shapes of the base's answers to the prompts whose right answers are learnt."""
        return frozenset(shape_of(known.text) for _, known in self._answered)

    def is_same_kind(self, known: Known) -> bool:
        """True for an answer that has the shape of one whose right answer is learnt."""
        return shape_of(known.text) in self.kinds

    @cached_property
    def scope(self) -> Fitted:
        """The fitted head."""
        past = self._before
        same = np.array([self.is_same_kind(known) for known in past])
        others = _rows(self.alone, like=self.events)
        is_checked = self._shapes(WHOLE_TOKENS) is not None
        return fitted(_rows(self.inside), _rows(past), others, same, is_checked=is_checked)

    def _shapes(self, n_tokens: int) -> frozenset[str] | None:
        """Shapes of the base's answers to the feedback, of so many tokens."""
        return draft_shapes([known.draft(n_tokens) for known in self.events])

    @cached_property
    def check(self) -> tuple[int, frozenset[str] | None]:
        """The draft check: tokens of a draft, and shapes in scope."""
        whole = self._shapes(WHOLE_TOKENS) if self.scope.is_wide else None
        return (DRAFT_TOKENS, self._shapes(DRAFT_TOKENS)) if whole is None else (WHOLE_TOKENS, whole)

    def trained(self, began: float) -> Trained:
        """The adapter of all examples, and its scope."""
        learnt = self._learnt()
        n_rows, settings = len(learnt), self._settings(len(learnt))
        found = self.base.fit([*learnt, *self._kept()], settings, self.stop)
        if found is None:
            raise Interrupted
        adapter, n_steps = found
        n_drafted, shapes = self.check
        config = {
            **self._words, "steps": n_steps, "rows": n_rows, "wide": self.scope.is_wide,
            "shapes": None if shapes is None else sorted(shapes), "drafted": n_drafted,
        }  # fmt: skip
        return Trained(
            adapter=adapter_to_bytes(adapter), scope=self._heads.to_bytes(), config=config,
            n_steps=n_steps, seconds=monotonic() - began, left_out=self._left_out(),
            excused=frozenset(id for id, _, known in self.past if self._is_excused(known)),
            kept=tuple(sorted(id for id, _, _ in self.past)),
        )  # fmt: skip

    @property
    def _heads(self) -> PromptScope:
        known = (self.inside, self._before)
        events, past = (np.stack([one.prefilter_features for one in each]) for each in known)
        return PromptScope(self.scope.head, None, prefilter(events, past, np.isfinite(self.scope.past)))

    @property
    def _before(self) -> Sequence[Known]:
        return [known for _, _, known in self.past]

    @property
    def _words(self) -> Mapping[str, Any]:
        return {**DEFAULTS, **self.job.settings}

    def _settings(self, n_rows: int) -> TrainingSettings:
        words = self._words
        if words["activated"] and not self.base.invocation:
            raise RequestError(
                "the chat template gives answers no header, so an adapter cannot be activated by it",
                field="learn",
            )
        steps = int(words.get("steps") or min(MOST_STEPS, LEAST_STEPS + n_rows))
        return TrainingSettings(
            rank=words["rank"], alpha=words["scale"] * words["rank"], rate=words["rate"], kl=words["kl"],
            steps=min(steps, TRIAL_STEPS) if self.job.is_trial else steps,
            batch=0 if n_rows <= MOST_AT_ONCE else BATCH, keep_batch=4,
            invocation=self.base.invocation if words["activated"] else (),
            seconds=self.job.seconds, most_bytes=self.job.n_bytes, seed=self.job.seed,
        )  # fmt: skip

    def _learnt(self) -> list[Example]:
        """Right answers, and those that a shared edit makes."""
        items = (*self.items, *(item for item, _ in self.distilled))
        right = (Example(prompt=prompt, answer=answer) for prompt, answer in map(self.base.target, items))
        edit = self._edit if self.scope.is_wide else None
        return [*right, *(chain(self._edited_past(edit), self._edited_swaps(edit)) if edit else ())]

    @property
    def _edit(self) -> Edit | None:
        return shared_edit([(known.text, text_of(item.approved or {})) for item, known in self._answered])

    def _edited(self, known: Known, edit: Edit) -> Example:
        return Example(prompt=known.prompt, answer=self.base.answer_ids(edit(known.text)))

    def _edited_past(self, edit: Edit) -> Iterator[Example]:
        for _, _, known in self.past:
            if self.is_same_kind(known):
                yield self._edited(known, edit)

    def _edited_swaps(self, edit: Edit) -> Iterator[Example]:
        """Prompts of the feedback about other words, which the user's past requests have."""
        words = words_in([text_of(question.messages[-1]) for _, question, _ in self.past])
        asked = list(self._swaps(words)) if words else []
        known = self.base.known([question for question, _ in asked], self.stop)
        for (_, word), own in zip(asked, known, strict=True):
            if own and self.is_same_kind(own) and answered_word(word, own.text):
                yield self._edited(own, edit)

    def _swaps(self, words: Sequence[str]) -> Iterator[tuple[Question, str]]:
        named = [
            (item, word)
            for item, known in self._answered
            if (word := answered_word(item.exchange.question, known.text))
        ]
        for _ in range(N_SWAPPED if named else 0):
            item, word = self._rng.choice(named)
            question = Question.of(item.exchange)
            *before, last = question.messages
            text, other = swapped(text_of(last), word, words, self._rng)
            yield replace(question, messages=(*before, {**last, "content": text})), other

    def _kept(self) -> list[Example]:
        """The prompts outside that are nearest to the feedback, with the base's answers."""
        known: list[Known] = [*(own for _, _, own in self.past), *self.alone]
        scores = np.nan_to_num(np.concatenate([self.scope.past, self.scope.others]), nan=-np.inf)
        order: list[int] = np.argsort(-scores, kind="stable")[:NEAREST].tolist()
        nearest = [known[i] for i in order if np.isfinite(scores[i])]
        return [Example(prompt=own.prompt, answer=own.answer_ids, role=KEEP) for own in nearest]

    def _left_out(self) -> dict[str, bool]:
        """Past requests by completion: True if a head without the request has it in scope."""
        threshold = self.scope.head.threshold
        pairs = zip(self.past, self.scope.past, strict=True)
        return {id: bool(score > threshold) for (id, _, _), score in pairs if np.isfinite(score)}

    def _is_excused(self, known: Known) -> bool:
        """True for a past request whose answer a wide preference is meant to change."""
        return self.scope.is_wide and self.is_same_kind(known)


def _alone(questions: Sequence[Question]) -> Iterator[Question]:
    """The last messages of prompts with earlier turns or tools, without those."""
    for question in questions:
        if len(question.messages) > 1 or question.tools:
            yield Question(messages=question.messages[-1:])


def _rows(known: Sequence[Known], like: Sequence[Known] = ()) -> F32:
    """Features of prompts as rows; with none of them, no rows as wide as `like`."""
    if not known:
        return np.zeros((0, len(like[0].features)), np.float32)
    return np.stack([each.features for each in known])

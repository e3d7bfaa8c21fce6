"""The gate: a candidate is published only if held-out feedback improves by more than chance, and past
requests keep their answers (`retention.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, TypeVar

from camelid.learning.items import Item, Message, same_answer
from camelid.learning.robust import conversation_key
from camelid.learning.sign_test import LEVEL, sign_test
from camelid.learning.training import Candidate, Evaluator, Given, Pace, Question, Trained

N_FOLDS = 4
FEWEST = 5  # differing items below which no test can pass

T = TypeVar("T")
Make = Callable[[Sequence[Item]], Candidate]  # a candidate that has seen these items alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Why a candidate was accepted or refused, in figures.

    `held_before` and `held_after` count right answers to items that their candidate had not seen; `lost` are
    past requests whose answers changed though nobody asked for it, and checks that the base passes.
    Answers rated -1 must not become likelier more often than rarer. `n_answers_better` and `n_answers_worse`
    count answers that changed: they pass the same test, since a candidate that only makes the base surer of
    what it answers anyway gains nothing. `order` is one of `orders.py`; `n_memory` and `n_together` are the
    held-out items that memory alone answers rightly, and memory and the candidate in that order.
    """

    name: str
    is_accepted: bool = False
    why: str = ""
    n_items: int = 0
    held_before: int = 0
    held_after: int = 0
    n_better: int = 0
    n_worse: int = 0
    n_downs_likelier: int = 0
    n_downs_rarer: int = 0
    n_answers_better: int = 0
    n_answers_worse: int = 0
    p: float = 1.0
    n_kept: int = 0
    lost: tuple[str, ...] = ()
    n_out_of_scope: int = 0
    n_changed_bits: int = 0
    order: str = ""
    n_memory: int = 0
    n_together: int = 0
    seconds: float = 0.0

    def facts(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


def folds(items: Sequence[Item], n: int = N_FOLDS, seed: int = 0) -> list[list[Item]]:
    """The items in n parts of nearly equal size; equal prompts fall into one part."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(conversation_key(item.exchange), []).append(item)
    order = list(groups.values())
    Random(seed).shuffle(order)
    parts: list[list[Item]] = [[] for _ in range(n)]
    for group in order:
        min(parts, key=len).extend(group)
    return [part for part in parts if part]


def compare(item: Item, before: Message, after: Message, gain: float | None = None) -> int:
    """+1 if the later answer is better by this feedback, -1 if it is worse, else 0.

    With a `gain` (`Evaluator.gains`), an answer rated +1 is better if it is likelier. An item without a right
    answer can only warn: to leave a refused answer for any other proves nothing.
    """
    if gain is not None and item.rating > 0 and not item.correction:
        return (gain > 0.0) - (gain < 0.0)
    change = change_of(item, before, after)
    return change if item.approved else min(change, 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """The report on held-out items, and each item with the base's answer and the candidate's."""

    report: Report
    answered: tuple[tuple[Item, Given, Given], ...] = ()


def held_out(
    name: str, items: Sequence[Item], make: Make, evaluator: Evaluator, pace: Pace, level: float = LEVEL
) -> Trial:
    """The trial on held-out items: each is answered by a candidate that has seen the other folds alone."""
    report, answered = Report(name=name, n_items=len(items)), list[tuple[Item, Given, Given]]()
    for part in folds(items):
        seen = {item.id for item in part}
        candidate = make([item for item in items if item.id not in seen])
        questions = [Question.of(item.exchange) for item in part]
        before = asked(evaluator.answers(None, questions), pace)
        after = asked(evaluator.answers(candidate, questions), pace)
        gains = _gains(candidate, part, evaluator, pace)
        answered += zip(part, before, after, strict=True)
        for item, a, b in answered[-len(part) :]:
            report = _counted(report, item, a.answer, b.answer, gains.get(item.id))
    p = sign_test(report.n_better, report.n_worse)
    is_accepted = p < level and _changes(report, level) and report.n_downs_likelier <= report.n_downs_rarer
    report = replace(report, p=p, why=_why_held_out(report, p, level), is_accepted=is_accepted)
    return Trial(report, tuple(answered))


def _changes(report: Report, level: float) -> bool:
    """True if answers change for the better by more than chance."""
    return sign_test(report.n_answers_better, report.n_answers_worse) < level


def is_right(item: Item, answer: Message) -> bool:
    """True for the answer that the item approves."""
    return item.approved is not None and same_answer(answer, item.approved)


def change_of(item: Item, before: Message, after: Message) -> int:
    """+1 if an answer becomes the right one or is no longer the refused one, -1 for the reverse, else 0."""
    if item.approved:
        return is_right(item, after) - is_right(item, before)
    assert item.refused, "an item without a right answer refuses one"
    return same_answer(before, item.refused) - same_answer(after, item.refused)


def _gains(candidate: Candidate, items: Sequence[Item], evaluator: Evaluator, pace: Pace) -> dict[int, float]:
    """Gains of the answers that were rated without a correction, by item; none for memory."""
    rated = [item for item in items if not item.correction]
    if not rated or not isinstance(candidate, Trained):
        return {}
    return dict(zip((item.id for item in rated), asked(evaluator.gains(candidate, rated), pace), strict=True))


def asked(answers: Iterable[T], pace: Pace) -> list[T]:
    """All answers. Raises Interrupted between two."""
    found: list[T] = []
    for given in answers:
        found.append(given)
        pace.check()
    return found


def _counted(report: Report, item: Item, before: Message, after: Message, gain: float | None) -> Report:
    change = change_of(item, before, after)
    report = replace(
        report,
        n_answers_better=report.n_answers_better + (change > 0),
        n_answers_worse=report.n_answers_worse + (change < 0),
    )
    if item.refused and not item.approved and gain is not None:
        likelier, rarer = report.n_downs_likelier + (gain > 0.0), report.n_downs_rarer + (gain < 0.0)
        return replace(report, n_downs_likelier=likelier, n_downs_rarer=rarer)
    difference = compare(item, before, after, gain)
    return replace(
        report,
        held_before=report.held_before + is_right(item, before),
        held_after=report.held_after + is_right(item, after),
        n_better=report.n_better + (difference > 0),
        n_worse=report.n_worse + (difference < 0),
    )


def _why_held_out(report: Report, p: float, level: float) -> str:
    figures = f"{report.n_better} held-out items better, {report.n_worse} worse"
    if report.n_downs_likelier > report.n_downs_rarer:
        n, rarer = report.n_downs_likelier, report.n_downs_rarer
        return f"{figures}; {n} answers rated -1 likelier, {rarer} rarer"
    if p < level and not _changes(report, level):
        n, worse = report.n_answers_better, report.n_answers_worse
        changes = f"{n} answers changed for the better, {worse} for the worse"
        return f"{figures}, but {changes}: no more than chance"
    if p < level:
        return f"{figures} (p = {p:.3g})"
    if report.n_better + report.n_worse < FEWEST:
        return f"{figures}: too few differ to tell a gain from chance; memory acts alone"
    return f"{figures}: no more than chance (p = {p:.3g}, needed below {level:g})"

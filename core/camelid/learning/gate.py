"""The gate: a candidate is published only if held-out feedback improves by more than chance, at most two of
300 past requests lose their answer, and requests out of its scope keep their very bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, TypeVar

from camelid.learning.features import DIM
from camelid.learning.items import Item, Message, same_answer
from camelid.learning.robust import conversation_key
from camelid.learning.rows import PastRequest
from camelid.learning.sign_test import LEVEL, sign_test
from camelid.learning.training import Candidate, Evaluator, Given, Pace, Question, Trained
from camelid.learning.vectors import Kernels, Rows

N_FOLDS = 4
N_NEAR, N_RANDOM = 150, 150
MOST_LOST = 2
FEWEST = 5  # differing items below which no test can pass
SAME = 0.9  # similarity of questions from which an approved answer replaces another one rightly

T = TypeVar("T")
Make = Callable[[Sequence[Item]], Candidate]  # a candidate that has seen these items alone
Check = tuple[Question, Callable[[Message], bool]]  # a question, and whether an answer to it is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Why a candidate was accepted or refused, in figures.

    `held_before` and `held_after` count right answers to items that their candidate had not seen; `lost` are
    past requests whose answers changed though nobody asked for it, and checks that the base passes.
    Answers rated -1 must not become likelier more often than rarer. `n_answers_better` and `n_answers_worse`
    count answers that changed: they pass the same test, since a candidate that only makes the base surer of
    what it answers anyway gains nothing.
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


def held_out(
    name: str, items: Sequence[Item], make: Make, evaluator: Evaluator, pace: Pace, level: float = LEVEL
) -> Report:
    """The report on held-out items: each is answered by a candidate that has seen the other folds alone."""
    report = Report(name=name, n_items=len(items))
    for part in folds(items):
        seen = {item.id for item in part}
        candidate = make([item for item in items if item.id not in seen])
        questions = [Question.of(item.exchange) for item in part]
        before = _read(evaluator.answers(None, questions), pace)
        after = _read(evaluator.answers(candidate, questions), pace)
        gains = _gains(candidate, part, evaluator, pace)
        for item, a, b in zip(part, before, after, strict=True):
            report = _counted(report, item, a.answer, b.answer, gains.get(item.id))
    p = sign_test(report.n_better, report.n_worse)
    is_accepted = p < level and _changes(report, level) and report.n_downs_likelier <= report.n_downs_rarer
    return replace(report, p=p, why=_why_held_out(report, p, level), is_accepted=is_accepted)


def _changes(report: Report, level: float) -> bool:
    """True if answers change for the better by more than chance."""
    return sign_test(report.n_answers_better, report.n_answers_worse) < level


def change_of(item: Item, before: Message, after: Message) -> int:
    """+1 if an answer becomes the right one or is no longer the refused one, -1 for the reverse, else 0."""
    if item.approved:
        return same_answer(after, item.approved) - same_answer(before, item.approved)
    assert item.refused, "an item without a right answer refuses one"
    return same_answer(before, item.refused) - same_answer(after, item.refused)


def _gains(candidate: Candidate, items: Sequence[Item], evaluator: Evaluator, pace: Pace) -> dict[int, float]:
    """Gains of the answers that were rated without a correction, by item; none for memory."""
    rated = [item for item in items if not item.correction]
    if not rated or not isinstance(candidate, Trained):
        return {}
    return dict(zip((item.id for item in rated), _read(evaluator.gains(candidate, rated), pace), strict=True))


def _read(answers: Iterable[T], pace: Pace) -> list[T]:
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
    right = item.approved
    return replace(
        report,
        held_before=report.held_before + bool(right and same_answer(before, right)),
        held_after=report.held_after + bool(right and same_answer(after, right)),
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


def kept_requests(
    items: Sequence[tuple[Item, bytes]], others: Sequence[PastRequest], kernels: Kernels, seed: int = 0
) -> list[tuple[PastRequest, Item | None]]:
    """The past requests nearest to the feedback and as many random others, each with its nearest item if that
    asks the same. `others` are requests that no feedback is on.
    """
    rows, by_id = Rows(DIM, kernels), {item.id: item for item, _ in items}
    for item, vector in items:
        rows.add(item.id, vector)
    nearest = [(rows.nearest(array("f", request.vector), 1) or [(0.0, 0)])[0] for request in others]
    order = sorted(range(len(others)), key=lambda i: -nearest[i][0])
    rest = order[N_NEAR:]
    chosen = [*order[:N_NEAR], *Random(seed).sample(rest, min(N_RANDOM, len(rest)))]
    return [(others[i], by_id.get(nearest[i][1]) if nearest[i][0] >= SAME else None) for i in chosen]


def retained(
    report: Report,
    candidate: Candidate,
    kept: Sequence[tuple[PastRequest, Item | None]],
    evaluator: Evaluator,
    pace: Pace,
    checks: Sequence[Check] = (),
) -> Report:
    """The report with the past requests and checks that a candidate loses."""
    questions = [*(Question.of(past.exchange) for past, _ in kept), *(question for question, _ in checks)]
    before = _read(evaluator.answers(None, questions), pace)
    after = _read(evaluator.answers(candidate, questions), pace)
    pairs = list(zip(before, after, strict=True))
    outside = [(a, b) for a, b in pairs if not b.in_scope]
    n_changed = sum(a.bits != b.bits for a, b in outside)
    excused = candidate.excused if isinstance(candidate, Trained) else frozenset[str]()
    lost = tuple(_lost(kept, checks, pairs, excused))
    found = replace(
        report, n_kept=len(pairs), lost=lost, n_out_of_scope=len(outside), n_changed_bits=n_changed
    )
    answers = [each.answer for each in before[len(kept) :]]
    n_right = sum(is_right(answer) for (_, is_right), answer in zip(checks, answers, strict=True))
    passed = f" and checks (the base passes {n_right} of {len(checks)})" if checks else ""
    return _judged(found, f"past requests{passed}")


def _lost(
    kept: Sequence[tuple[PastRequest, Item | None]],
    checks: Sequence[Check],
    pairs: Sequence[tuple[Given, Given]],
    excused: frozenset[str],
) -> Iterator[str]:
    """Names of the lost: the completion's id of a past request, the name or number of a check."""
    n = len(kept)
    for (past, item), (before, after) in zip(kept, pairs[:n], strict=True):
        wanted = item.approved if item else None
        is_wanted = wanted is not None and same_answer(after.answer, wanted)
        is_wanted = is_wanted or past.exchange.completion_id in excused
        if not is_wanted and not same_answer(before.answer, after.answer):
            yield past.exchange.completion_id
    for i, ((asked, is_right), (before, after)) in enumerate(zip(checks, pairs[n:], strict=True)):
        if is_right(before.answer) and not is_right(after.answer):
            yield asked.completion_id or f"check {i}"


def _judged(report: Report, kept: str) -> Report:
    """The report with its last word. `kept` is the noun of its items that may not be lost."""
    if report.n_changed_bits:
        n, of = report.n_changed_bits, report.n_out_of_scope
        why = f"{n} of {of} requests out of scope lost their bits"
    elif len(report.lost) > MOST_LOST:
        why = f"{len(report.lost)} of {report.n_kept} {kept} lost their answer, at most {MOST_LOST} may"
    else:
        lost = f"{len(report.lost)} of {report.n_kept} {kept} lost"
        return replace(report, why=f"{report.why}; {lost}") if report.is_accepted else report
    return replace(report, is_accepted=False, why=why)

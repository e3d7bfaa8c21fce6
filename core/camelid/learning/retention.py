"""Retention: at most two of 300 past requests lose their answer to a candidate, and requests out of its scope
keep their very bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from camelid.learning.features import DIM
from camelid.learning.gate import Report
from camelid.learning.items import Item, Message, answer_key
from camelid.learning.rows import PastRequest
from camelid.learning.training import Given, Question
from camelid.learning.vectors import Kernels, Rows

N_NEAR, N_RANDOM = 150, 150
MOST_LOST = 2
SAME = 0.9  # similarity of questions from which an approved answer replaces another one rightly

Check = tuple[Question, Callable[[Message], bool]]  # a question, and whether an answer to it is right


@dataclass(frozen=True, slots=True)
class Retention:
    """Past requests, each with its nearest item if that asks the same, and checks. `before` are the base's
    answers to `questions`, `wanted` the keys of answers that shared corrections give, by completion.
    """

    kept: Sequence[tuple[PastRequest, Item | None]]
    checks: Sequence[Check] = ()
    before: Sequence[Given] = ()
    wanted: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def questions(self) -> list[Question]:
        """The questions of all, past requests before checks."""
        return [*(Question.of(past.exchange) for past, _ in self.kept), *(asked for asked, _ in self.checks)]

    def lost(self, after: Sequence[Given]) -> tuple[str, ...]:
        """Names of the lost: the completion's id of a past request, the name or number of a check."""
        pairs, n = list(zip(self.before, after, strict=True)), len(self.kept)
        return (*self._lost_past(pairs[:n]), *self._lost_checks(pairs[n:]))

    def _lost_past(self, pairs: Sequence[tuple[Given, Given]]) -> Iterator[str]:
        for (past, item), (before, after) in zip(self.kept, pairs, strict=True):
            id, right = past.exchange.completion_id, {self.wanted.get(past.exchange.completion_id)}
            right |= {answer_key(each) for each in (before.answer, item and item.approved) if each}
            if answer_key(after.answer) not in right and not after.is_excused:
                yield id

    def _lost_checks(self, pairs: Sequence[tuple[Given, Given]]) -> Iterator[str]:
        for i, ((asked, is_right), (before, after)) in enumerate(zip(self.checks, pairs, strict=True)):
            if is_right(before.answer) and not is_right(after.answer):
                yield asked.completion_id or f"check {i}"

    def judged(self, report: Report, after: Sequence[Given]) -> Report:
        """The report with what the candidate of these answers loses, and the gate's last word."""
        outside = [(a, b) for a, b in zip(self.before, after, strict=True) if not b.in_scope]
        n_changed = sum(a.bits != b.bits for a, b in outside)
        found = replace(
            report, n_kept=len(after), lost=self.lost(after), n_out_of_scope=len(outside),
            n_changed_bits=n_changed,
        )  # fmt: skip
        return _judged(found, f"past requests{self._passed}")

    @property
    def _passed(self) -> str:
        answers = [each.answer for each in self.before[len(self.kept) :]]
        n_right = sum(is_right(answer) for (_, is_right), answer in zip(self.checks, answers, strict=True))
        return f" and checks (the base passes {n_right} of {len(self.checks)})" if self.checks else ""


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

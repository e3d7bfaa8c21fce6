"""Orders: what acts on a request that both memory and a version in use have in scope.

The gate compares the orders on the same held-out items and past requests, and memory alone with them: a
version must not take rightly answered requests from memory. A prompt whose nearest item is newer than the
version is memory's in every order, so that a correction of the version's answer takes effect at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from camelid.learning.gate import Report, Trial, is_right
from camelid.learning.retention import MOST_LOST, Retention
from camelid.learning.rows import MIXTURES, NO_FORM
from camelid.learning.training import Given

Order = Literal["after", "first", "alone"]  # memory after the version, before it, or not at all
Actor = Literal["adapter", "memory"]
WORDS: Mapping[Order, str] = {
    "after": "adapter before memory", "first": "memory before adapter", "alone": "adapter without memory",
}  # fmt: skip
# Of orders with equal figures memory acts first, since it copies the user's answers: of 100 new questions
# about facts it has 98 or 99 right, versions with equal held-out figures 78 to 94 (tests/perf/learning.md).
OF_MIXTURES: Mapping[Order, Sequence[Actor]] = {
    "first": ("memory", "adapter"), "after": ("adapter", "memory"), "alone": ("adapter",),
}  # fmt: skip
# Actors by form of memory: the first that has the request in scope acts. Earlier turns are part of a prompt
# before its scope is known, so that they cannot act after an adapter.
ORDERS: Mapping[str, Mapping[Order, Sequence[Actor]]] = {
    **dict.fromkeys(MIXTURES, OF_MIXTURES),
    "turns": {"after": ("adapter",), "first": ("memory", "adapter")},
    "none": {"after": ("adapter",)},
}


@dataclass(frozen=True, slots=True)
class Side:
    """Memory or a version at the gate: its trial on held-out items, and its answers to the questions of the
    retention.
    """

    trial: Trial
    kept: Sequence[Given]

    @property
    def given(self) -> list[Given]:
        """Its answers to the held-out items."""
        return [given for _, _, given in self.trial.answered]


@dataclass(frozen=True, slots=True)
class Choice:
    """An order with its held-out right answers and its lost past requests and checks."""

    order: Order
    n_right: int
    lost: tuple[str, ...]


def chosen(form: str, memory: Side, adapter: Side, retention: Retention) -> Choice:
    """The order with the most held-out right answers among those that lose at most MOST_LOST, which the
    adapter alone does; of equal ones the first.
    """
    sides: Mapping[Actor, Side] = {"adapter": adapter, "memory": memory}
    choices = [
        _choice(order, [sides[name] for name in names], retention) for order, names in ORDERS[form].items()
    ]
    kept = [choice for choice in choices if len(choice.lost) <= MOST_LOST]
    return max(kept, key=lambda choice: choice.n_right)


def _choice(order: Order, sides: Sequence[Side], retention: Retention) -> Choice:
    n_right = 0
    for (item, base, _), *row in zip(sides[0].trial.answered, *(side.given for side in sides), strict=True):
        n_right += is_right(item, _acted(row, base).answer)
    rows = zip(*(side.kept for side in sides), strict=True)
    after = [_acted(row, base) for row, base in zip(rows, retention.before, strict=True)]
    return Choice(order, n_right, retention.lost(after))


def _acted(row: Sequence[Given], base: Given) -> Given:
    """The first answer in scope, else the base's."""
    return next((given for given in row if given.in_scope), base)


def with_order(report: Report, choice: Choice, form: str, n_memory: int) -> Report:
    """The report with its order; refused if memory alone answers more of the held-out items rightly."""
    found = replace(
        report, order=choice.order, n_memory=n_memory, n_together=choice.n_right, lost=choice.lost
    )
    alone = "the base" if form == NO_FORM else "memory alone"
    of = f"{alone} has {n_memory} held-out items right"
    together = f"{WORDS[choice.order]} {choice.n_right}, {len(choice.lost)} lost"
    if choice.n_right < n_memory:
        return replace(found, is_accepted=False, why=f"{of}, {together}")
    return replace(found, why=f"{report.why}; {of}, {together}")

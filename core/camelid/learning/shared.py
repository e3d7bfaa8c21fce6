"""Corrections that several items share: they may be meant for past requests with the refused answer, too."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from camelid.learning.features import DIM
from camelid.learning.items import Exchange, Item, answer_key
from camelid.learning.memory import COARSE
from camelid.learning.vectors import Rows, fast_kernels

N_SHARED = 3  # items with one answer refused and one approved, from which a correction is shared


def shared_corrections(items: Sequence[Item]) -> dict[str, str]:
    """Keys of approved answers, by that of the refused answer which N_SHARED items correct to them alone."""
    right: dict[str, Counter[str]] = {}
    for item in items:
        if item.refused and item.approved:
            right.setdefault(answer_key(item.refused), Counter())[answer_key(item.approved)] += 1
    return {key: max(each) for key, each in right.items() if len(each) == 1 and each.total() >= N_SHARED}


def wanted(
    items: Sequence[Item], past: Sequence[Exchange], vector: Callable[[Exchange], array[float]]
) -> Mapping[str, str]:
    """Keys of the answers that shared corrections give to past requests near an item by words, by completion.

    `vector` is that of an exchange's question.
    """
    shared = shared_corrections(items)
    keys = ((each, answer_key(each.answer)) for each in past) if shared else ()
    alike = [(each, shared[key]) for each, key in keys if key in shared]
    rows = Rows(DIM, fast_kernels())
    for i, item in enumerate(items if alike else ()):
        rows.add(i, vector(item.exchange))
    return {each.completion_id: key for each, key in alike if rows.nearest(vector(each), 1)[0][0] >= COARSE}

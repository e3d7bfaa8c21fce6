"""Feedback that can be trusted: quotas against floods, one voice per source, votes where voices differ."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from camelid.errors import RequestError
from camelid.learning.items import Exchange, Item, answer_key

PER_MINUTE = 60  # items of one source; a flood waits
MOST_OF_SOURCE = 20_000  # items of one source that a store keeps


@dataclass(slots=True)
class Quota:
    """The feedback that each source may still give: a bucket that refills over a minute.

    `now` is a monotonic clock, so that a wall clock that jumps opens no bucket.
    """

    per_minute: int = PER_MINUTE
    now: Callable[[], float] = time.monotonic
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def spend(self, source: str) -> None:
        """Counts one item. Raises RequestError, whose `retry_s` are the seconds until the next."""
        left, at = self._buckets.get(source, (float(self.per_minute), self.now()))
        now = self.now()
        left = min(left + (now - at) * self.per_minute / 60, float(self.per_minute))
        if left < 1.0:
            seconds = (1.0 - left) * 60 / self.per_minute
            raise RequestError(
                f"{source!r:.80} has given {self.per_minute} pieces of feedback within a minute; wait "
                f"{seconds:.0f} s",
                field="feedback", reason="quota", retry_s=seconds,
            )  # fmt: skip
        self._buckets[source] = (left - 1.0, now)


def conversation_key(exchange: Exchange) -> str:
    """The text by which two prompts are the same: all messages and the names of the tools."""
    said = [[message.get("role"), message.get("content")] for message in exchange.messages]
    names = [str(tool.get("function", tool).get("name", "")) for tool in exchange.tools]
    return json.dumps([said, names], ensure_ascii=False, default=str)


def verdict(items: Sequence[Item]) -> Item | None:
    """The item whose answer the voices on one prompt approve; None if they approve none, or contradict.

    The newest item of each source is its voice: who changes their mind contradicts nobody, and a flood
    weighs as one item. An approved answer counts +1, a refused one -1; the answer with the most votes must
    have more than any other, and more than none.
    """
    voices = {item.source: item for item in sorted(items, key=lambda item: item.id)}
    votes = Counter[str]()
    for item in voices.values():
        right = answer_key(item.approved) if item.approved else None
        wrong = answer_key(item.refused) if item.refused else None
        if right:
            votes[right] += 1
        if wrong and wrong != right:  # else an answer was corrected to itself
            votes[wrong] -= 1
    ranked = votes.most_common(2)
    if not ranked or ranked[0][1] < 1 or (len(ranked) > 1 and ranked[1][1] == ranked[0][1]):
        return None
    agreeing = (i for i in voices.values() if i.approved and answer_key(i.approved) == ranked[0][0])
    return max(agreeing, key=lambda item: item.id)


def trusted(items: Iterable[Item]) -> list[Item]:
    """The items to learn from, in order: one for each prompt, and no source with more than all others
    together, unless it is alone.
    """
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(conversation_key(item.exchange), []).append(item)
    chosen = sorted(filter(None, map(verdict, groups.values())), key=lambda item: item.id)
    counts = Counter(item.source for item in chosen)
    if len(counts) < 2:
        return chosen
    source, n = counts.most_common(1)[0]
    excess = n - (len(chosen) - n)
    dropped = {item.id for item in [i for i in chosen if i.source == source][: max(excess, 0)]}
    return [item for item in chosen if item.id not in dropped]

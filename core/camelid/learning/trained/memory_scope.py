"""The scope of memory: a head over features of the base, fitted to items and past requests."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from camelid.learning.items import Exchange, Item
from camelid.learning.model_side import EngineSide
from camelid.learning.rows import FEWEST_PAST, MOST_PAST
from camelid.learning.shared import wanted
from camelid.learning.trained.acting import PromptScope, pooled, prefilter_features
from camelid.learning.trained.scope_head import F32, fitted, prefilter
from camelid.learning.trained.shapes import DRAFT_TOKENS, draft_shapes
from camelid.learning.vectors import Kernels, fast_kernels

AT_ONCE = 4  # prompts that the model reads together


@dataclass(frozen=True, slots=True)
class Near:
    """A scope, the items that its head was fitted to, and the threshold of a narrower scope."""

    scope: PromptScope
    items: tuple[int, ...]  # in the order of the head's first keys
    narrow: float
    # For the gate, by completion of a past request: its score by a head without it.
    scores: Mapping[str, float] = field(default_factory=dict[str, float])

    def of(self, form: str) -> Near:
        """The scope of a form of memory."""
        if form != "narrow":
            return self
        head = replace(self.scope.head, threshold=self.narrow)
        return replace(self, scope=replace(self.scope, head=head))

    def left_out(self, completion_id: str) -> bool | None:
        """True if a head without this past request has it in scope; None for an unknown request."""
        score = self.scores.get(completion_id)
        return None if score is None else score > self.scope.head.threshold

    def nearest(self, features: F32, n: int) -> list[int]:
        """The numbers of the items nearest to the prompt of these features, the nearest first."""
        found = self.scope.head.similarities(features)[: len(self.items)]
        return [self.items[i] for i in np.argsort(-found, kind="stable")[:n]]

    def to_text(self) -> str:
        """The scope as a fact of a store."""
        shapes = None if self.scope.shapes is None else sorted(self.scope.shapes)
        heads = base64.b64encode(self.scope.to_bytes()).decode()
        words = {"items": list(self.items), "narrow": self.narrow, "shapes": shapes, "heads": heads}
        return json.dumps(words)

    @classmethod
    def from_text(cls, text: str) -> Near | None:
        """The scope of `to_text`; None for one without a narrower scope, of an earlier version."""
        found: Mapping[str, Any] = json.loads(text)
        if "narrow" not in found:
            return None
        scope = PromptScope.of(base64.b64decode(found["heads"]), found["shapes"])
        return cls(scope, tuple(found["items"]), found["narrow"])


@dataclass(slots=True)
class MemoryScope:
    """Fits scopes. Features and drafts are kept by completion, so that each prompt is read once.

    `is_whole` is False while the latest fit lacks prompts that its time was too short for. With `keeps_all`,
    prompts that a fit has no use for are kept for the next one, such as of another fold.
    """

    side: EngineSide
    kernels: Kernels = field(default_factory=fast_kernels)
    keeps_all: bool = False
    is_whole: bool = True
    _features: dict[str, F32] = field(default_factory=dict[str, F32])
    _prefilter_features: dict[str, F32] = field(default_factory=dict[str, F32])
    _drafts: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def can_fit(self) -> bool:
        """True for a model whose prompts have features and whose answers a header."""
        return self.side.has_features and bool(self.side.invocation)

    async def fit(self, items: Sequence[Item], past: Sequence[Exchange], seconds: float) -> Near | None:
        """The scope of these items; None with too few past requests whose features are known.

        Within `seconds` it reads the items, then the latest past requests; the next call reads on.
        """
        latest = self.outside(items, past)
        if not latest:
            self.is_whole = True
            self._keep_only(set())
            return None
        await self.read(items, latest, seconds)
        read = [item for item in items if self._is_read(item.exchange)]
        inside = self._prompts([item.exchange for item in read])
        outside = self._prompts(latest)
        if not inside or len(outside) < FEWEST_PAST:
            return None
        drafts = [self._drafts[id] for item in items if (id := item.exchange.completion_id) in self._drafts]
        ids = tuple(item.id for item in read)
        names = [each.completion_id for each in latest if self._is_read(each)]
        return await asyncio.to_thread(_fit, inside, outside, drafts, ids, names)

    def outside(self, items: Sequence[Item], past: Sequence[Exchange]) -> list[Exchange]:
        """The past requests to fit to, the latest first: none if they are too few, or without items."""
        if not (items and self.can_fit):
            return []
        meant = wanted(items, past, lambda each: self.side.vector(each.question))
        latest = [each for each in past if each.completion_id not in meant][: -MOST_PAST - 1 : -1]
        return latest if len(latest) >= FEWEST_PAST else []

    async def read(self, items: Sequence[Item], outside: Sequence[Exchange], seconds: float) -> None:
        """Reads the prompts of a fit, as far as the time suffices, but at least one."""
        asked = [item.exchange for item in reversed(items)]
        self._keep_only({each.completion_id for each in (*asked, *outside)})
        self.is_whole = False  # also if reading fails
        await self._read_all(asked, outside, time.monotonic() + seconds)
        self.is_whole = all(map(self._is_drafted, asked)) and all(map(self._is_done, outside))

    async def _read_all(self, asked: Sequence[Exchange], past: Sequence[Exchange], ends: float) -> None:
        """Reads what is not known yet, at least one prompt, until `ends` of the monotonic clock."""
        for exchange in (each for each in asked if not self._is_drafted(each)):
            await self.side.rest()
            await self._read(exchange)
            await self._draft(exchange)
            if time.monotonic() > ends:
                return
        unread = [each for each in past if not self._is_done(each)]
        for at in range(0, len(unread), AT_ONCE):
            await self.side.rest()
            await asyncio.gather(*map(self._read, unread[at : at + AT_ONCE]))
            if time.monotonic() > ends:
                return

    def _prompts(self, exchanges: Sequence[Exchange]) -> list[tuple[F32, F32]]:
        read = [each.completion_id for each in exchanges if self._is_read(each)]
        return [(self._features[id], self._prefilter_features[id]) for id in read]

    def _keep_only(self, ids: Set[str]) -> None:
        for known in () if self.keeps_all else (self._features, self._prefilter_features, self._drafts):
            for id in known.keys() - ids:
                known.pop(id, None)

    def _is_done(self, exchange: Exchange) -> bool:
        """True for a prompt that was read, and for one without ids, which is never read."""
        return self._is_read(exchange) or not exchange.prompt_ids

    def _is_drafted(self, exchange: Exchange) -> bool:
        """As `_is_done`, with the draft of its answer."""
        is_drafted = exchange.completion_id in self._drafts
        return (self._is_read(exchange) and is_drafted) or not exchange.prompt_ids

    def _is_read(self, exchange: Exchange) -> bool:
        return exchange.completion_id in self._features

    async def _read(self, exchange: Exchange) -> None:
        if exchange.prompt_ids and not self._is_read(exchange):
            features = pooled(await self.side.features(exchange.prompt_ids))
            sketch = await self.side.sketch(exchange.prompt_ids, self.kernels)
            vector = self.side.vector(exchange.question)
            self._prefilter_features[exchange.completion_id] = prefilter_features(vector, sketch)
            self._features[exchange.completion_id] = features

    async def _draft(self, exchange: Exchange) -> None:
        id = exchange.completion_id
        if id not in self._drafts and exchange.prompt_ids:
            self._drafts[id] = await self.side.draft(exchange.prompt_ids, DRAFT_TOKENS)

    def forget(self, completion_id: str) -> None:
        """Drops what is known of a completion."""
        self._features.pop(completion_id, None)
        self._prefilter_features.pop(completion_id, None)
        self._drafts.pop(completion_id, None)


def _fit(
    inside: Sequence[tuple[F32, F32]],
    outside: Sequence[tuple[F32, F32]],
    drafts: Sequence[str],
    ids: tuple[int, ...],
    names: Sequence[str],
) -> Near:
    (events, asked), (past, before) = (map(np.stack, zip(*rows, strict=True)) for rows in (inside, outside))
    found = fitted(events, past, past[:0], np.zeros(len(past), bool))
    first = prefilter(asked, before, np.ones(len(before), bool))
    scope, scores = PromptScope(found.head, draft_shapes(drafts), first), found.past.tolist()
    return Near(scope, ids, found.narrow, dict(zip(names, scores, strict=True)))

"""Routes of requests: to the adapter of the version in use, to memory, or to the base."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from camelid.engine.request import Request
from camelid.errors import RequestError
from camelid.learning.model_side import EngineSide
from camelid.learning.store.store import Store
from camelid.learning.store.versions import BASE, current, version_of
from camelid.learning.trained.acting import Acting, PromptScope, pooled
from camelid.learning.trained.memory_scope import Near
from camelid.learning.trained.scope_head import F32
from camelid.learning.trained.shapes import DRAFT_TOKENS

N_NEAREST = 5  # items that act on a request in scope


@dataclass(slots=True)
class Look:
    """Features and draft of a request's prompt, each computed on first use."""

    request: Request
    side: EngineSide
    began: float = field(default_factory=time.monotonic)
    _features: F32 | None = None
    _draft: str | None = None

    async def features(self) -> F32:
        """Features of the prompt."""
        if self._features is None:
            self._features = pooled(await self.side.features(self.request.prompt_ids, self._left))
        return self._features

    async def draft(self) -> str:
        """The first tokens of the base's greedy answer."""
        if self._draft is None:
            self._draft = await self.side.draft(self.request.prompt_ids, DRAFT_TOKENS, self._left)
        return self._draft

    @property
    def _left(self) -> Request:
        return self.request.after(time.monotonic() - self.began)

    async def is_in(self, scope: PromptScope) -> bool:
        """True if the prompt is in a scope."""
        if not scope.has(await self.features()):
            return False
        return scope.shapes is None or scope.agrees(await self.draft())


@dataclass(slots=True)
class Router:
    """Routes requests of one space. The version in use is loaded with its first request; without a store
    there is none.
    """

    side: EngineSide
    store: Store | None = None
    _version: str = BASE
    _acting: Acting | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def routed(
        self,
        request: Request,
        near: Near | None,
        mixed: Callable[[Sequence[int]], Request],
        *,
        adapts: bool = True,
    ) -> Request:
        """The request with the version's adapter, if its prompt is in the version's scope and `adapts`; else
        as `mixed` returns it, if the prompt is in memory's scope. Raises CamelidError.
        """
        look, acting = Look(request, self.side), await self._in_use() if adapts else None
        if acting and await look.is_in(acting.scope):
            adapter = await self._selected(acting, request)
            if adapter:
                return adapter
        if near and await look.is_in(near.scope):
            return mixed(near.nearest(await look.features(), N_NEAREST))
        return request

    async def _selected(self, acting: Acting, request: Request) -> Request | None:
        """The request with the adapter, loaded again if it was unloaded for others."""
        name = acting.adapter.name
        try:
            adapter = self.side.select(name, request.prompt_ids)
        except RequestError:
            await self.side.load(acting.adapter)
            adapter = self.side.select(name, request.prompt_ids)
        return replace(request, adapter=adapter) if adapter else None

    async def _in_use(self) -> Acting | None:
        """The version in use. Two requests read it once."""
        if self.store is None:
            return None
        async with self._lock:
            name = current(self.store)
            if name != self._version:
                former = self._acting
                self._acting = await asyncio.to_thread(_read, self.store, name) if name != BASE else None
                self._version = name
                if former:
                    await self.side.unload(former.adapter.name)
            return self._acting


def _read(store: Store, name: str) -> Acting | None:
    """A version as it acts; None if another process made it stale meanwhile."""
    version = version_of(store, name)
    if version.status == "stale":
        return None
    title = f"learnt: {version.hash[:16]}"
    return Acting.of(title, version.adapter, version.scope, version.config)

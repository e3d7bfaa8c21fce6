"""Routes of requests: to the adapter of the version in use, to memory, or to the base."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from camelid.engine.request import Request
from camelid.errors import RequestError
from camelid.learning.model_side import EngineSide, Sketcher
from camelid.learning.store.store import Store
from camelid.learning.store.versions import BASE, current, version_of
from camelid.learning.trained.acting import Acting, PromptScope, pooled, prefilter_features
from camelid.learning.trained.memory_scope import Near
from camelid.learning.trained.scope_head import F32

N_NEAREST = 5  # items that act on a request in scope


@dataclass(slots=True)
class Look:
    """Features and drafts of a request's prompt, each computed on first use."""

    request: Request
    side: EngineSide
    began: float = field(default_factory=time.monotonic)
    _features: F32 | None = None
    _drafts: dict[int, str] = field(default_factory=dict[int, str])

    async def features(self) -> F32:
        """Features of the prompt."""
        if self._features is None:
            self._features = pooled(await self.side.features(self.request.prompt_ids, self._left))
        return self._features

    async def draft(self, n_tokens: int) -> str:
        """The first tokens of the base's greedy answer."""
        if n_tokens not in self._drafts:
            self._drafts[n_tokens] = await self.side.draft(self.request.prompt_ids, n_tokens, self._left)
        return self._drafts[n_tokens]

    @property
    def _left(self) -> Request:
        return self.request.after(time.monotonic() - self.began)

    async def is_in(self, scope: PromptScope) -> bool:
        """True if the prompt is in a scope."""
        if not scope.has(await self.features()):
            return False
        return scope.shapes is None or scope.agrees(await self.draft(scope.n_drafted))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates that may act on a request: the version in use, and memory."""

    acting: Acting | None
    near: Near | None

    @property
    def scopes(self) -> tuple[PromptScope, ...]:
        """Their scopes."""
        return tuple(each.scope for each in (self.acting, self.near) if each)

    @property
    def have_prefilters(self) -> bool:
        """True if the logits after a prompt can tell that nothing acts on it."""
        return all(scope.prefilter for scope in self.scopes)

    def may_act(self, features: F32) -> bool:
        """True for a prompt that may be in one of the scopes."""
        return any(scope.passes(features) for scope in self.scopes)


@dataclass(slots=True, kw_only=True)
class ScopeProbe(Sketcher):
    """A `Probe` that looks at a prompt only if the logits after it pass a prefilter.

    `look` returns the request with the adapter or mixer that acts on it, None without one.
    """

    candidates: Candidates
    vector: array[float]
    look: Callable[[Request], Awaitable[Request | None]]
    _is_kept: bool | None = None  # None before the decision
    _waiting: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    _lock: threading.Lock = field(default_factory=threading.Lock)  # answers end on the engine's thread

    async def redirected(self, request: Request) -> Request | None:
        """As `Probe.redirected`. A request that ended without logits stays."""
        other = await self.look(request) if self._passes else None
        with self._lock:
            self._is_kept = other is None
        for work in self._waiting if self._is_kept else ():
            work()
        return other

    @property
    def _passes(self) -> bool:
        return self.sketch is not None and self.candidates.may_act(
            prefilter_features(self.vector, self.sketch)
        )

    def if_kept(self, work: Callable[[], object]) -> None:
        """Calls a function, perhaps later, if no other request replaces this one."""
        with self._lock:
            if self._is_kept is None:
                self._waiting.append(work)
        if self._is_kept:
            work()


@dataclass(slots=True)
class Router:
    """Routes requests of one space. The version in use is loaded with its first request."""

    side: EngineSide
    store: Store
    _version: str = BASE
    _acting: Acting | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def candidates(self, near: Near | None, *, adapts: bool) -> Candidates:
        """The candidates for a request. Raises CamelidError for a version that cannot be read."""
        return Candidates(await self._in_use() if adapts else None, near)

    async def looked(
        self, request: Request, found: Candidates, mixed: Callable[[Sequence[int]], Request]
    ) -> Request:
        """The request with the version's adapter or as `mixed` returns it, if its prompt is in the version's
        or memory's scope; in both, by the version's order. Raises CamelidError.
        """
        look, near, acting = Look(request, self.side), found.near, found.acting
        recalled, item = request, 0
        if near and await look.is_in(near.scope):
            nearest = near.nearest(await look.features(), N_NEAREST)
            recalled, item = mixed(nearest), nearest[0]
        if acting is None or (recalled is not request and acting.yields_to(item)):
            return recalled
        behind = request if acting.order == "alone" else recalled
        if await look.is_in(acting.scope):
            return await self._selected(acting, request) or behind
        return behind

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
    acting = Acting.of(title, version.adapter, version.scope, version.config)
    return replace(acting, newest=max((id for id, _ in version.items), default=0))

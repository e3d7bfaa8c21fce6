"""Learning of one user with one loaded model: requests on their way in and out, and feedback on them."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from camelid.engine.request import Request
from camelid.errors import CamelidError, RequestError, shown
from camelid.learning.items import (
    Exchange,
    Item,
    Message,
    check_calls,
    checked_correction,
    checked_rating,
    question_of,
)
from camelid.learning.memory import COARSE, Recall
from camelid.learning.model_side import ModelSide
from camelid.learning.rows import FORMS, MIXTURES
from camelid.learning.space import Space
from camelid.learning.turns import with_turns
from camelid.learning.watched import watched
from camelid.requests.output_text import Completion, answer_message

if TYPE_CHECKING:  # a web page has no SQLite, and no NumPy
    from camelid.learning.store.forget import Forgotten
    from camelid.learning.trained.memory_scope import MemoryScope
    from camelid.learning.trained.routing import Candidates, Router, ScopeProbe

MOST_RECENT = 256  # exchanges that feedback may name before they are stored
MOST_PENDING = 64  # items whose contexts are computed at a time
FIT_S = 2.0  # of reading past requests after one feedback; the next reads on


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as learning sees it: its messages and tools, its question's vector, the items nearest to it,
    those of them that are in scope by the similarity of words, and the form of memory.
    """

    messages: tuple[Message, ...]
    tools: tuple[Message, ...]
    vector: array[float]
    nearest: Recall
    recall: Recall
    form: str = FORMS[0]


@dataclass(frozen=True, slots=True)
class Turn:
    """A request on its way: its prompt, the id of its completion (by default random), whether a learnt
    adapter may act on it, whether that is decided before it is submitted, whether its prompt has items as
    earlier turns, and whether it may be in a scope that is not fitted yet.
    """

    asked: Asked
    name: str
    adapts: bool
    is_at_once: bool
    has_turns: bool
    is_undecided: bool


class Learner:
    """Recalls feedback for requests, notes their answers, and takes feedback on them.

    With a router and a fitted scope, features of the base decide what acts on a request; without, as in a
    page, the similarity of words.
    """

    def __init__(
        self,
        space: Space,
        side: ModelSide,
        router: Router | None = None,
        memory_scope: MemoryScope | None = None,
    ) -> None:
        self.space, self.side = space, side
        self._router, self._memory_scope = router, memory_scope
        self._recent: OrderedDict[str, Exchange] = OrderedDict()
        self._fitting = asyncio.Lock()
        self._failed = False  # the latest fit
        self._settled_of = -1  # the items as of `Memory.n_changes` at the latest `settle`

    def asked(self, prompt: object, options: Mapping[str, Any]) -> Asked | None:
        """The question of a prompt; None for token ids and images, from which nothing is learnt."""
        messages = _messages(prompt)
        if not messages:
            return None
        vector = self.side.vector(question_of(messages))
        nearest = self.space.nearest(vector)
        form, scope = self.space.form, self.space.memory.scope
        recall = nearest.within(scope.narrow if form == "narrow" else scope.threshold)
        tools = tuple(options.get("tools") or ())
        return Asked(messages, tools, vector, nearest, recall, form)

    def prompt(self, asked: Asked, *, names_adapter: bool = False) -> list[Message]:
        """The messages to render: with earlier turns, where these are the form of memory.

        Items in whose place the version in use acts are no turns: the gate judged its adapter without them.
        A request that names adapters has no learnt one.
        """
        turns = self._turns(asked, names_adapter=names_adapter)
        return with_turns(asked.messages, turns) if turns else list(asked.messages)

    def _turns(self, asked: Asked, *, names_adapter: bool) -> Recall:
        """The items that are earlier turns of a prompt."""
        if asked.form != "turns" or not asked.recall or not asked.messages[0].get("role"):
            return Recall()
        return asked.recall.without(frozenset[int]() if names_adapter else self.space.replaced)

    def request(
        self,
        request: Request,
        asked: Asked,
        name: str = "",
        *,
        names_adapter: bool = False,
        is_at_once: bool = False,
    ) -> Request:
        """The request with its memory, and with its answer noted as `name` (by default a random id).

        Speculation takes a request's draws from the device, so such a request has no mixture. A request that
        names adapters, or none on purpose, has no learnt one; nor has one with earlier turns. With
        `is_at_once`, the logits after the prompt are no reason to leave a look at it out.
        """
        has_turns = bool(self._turns(asked, names_adapter=names_adapter))
        adapts = not (names_adapter or request.adapter or request.is_atomic or has_turns)
        turn = Turn(asked, name, adapts, is_at_once, has_turns, self._is_undecided(asked))
        if self._router is None:
            return self._noted(turn, self._mixed(request, asked))
        return replace(request, route=partial(self._routed, turn))

    def _is_undecided(self, asked: Asked) -> bool:
        """True for a prompt that a fit of memory's scope may yet have in scope."""
        scope = self._memory_scope
        if scope is None or not scope.can_fit or self.space.near:
            return False
        return asked.form in MIXTURES and bool(asked.nearest.within(COARSE))

    async def _routed(self, turn: Turn, request: Request) -> Request:
        """The request with the adapter or mixer that acts on it, or with a probe that decides on them."""
        began, found, acted = time.monotonic(), await self._candidates(turn), None
        base, found = self._by_words(turn, request, found) if self.space.near is None else (request, found)
        if found and (turn.is_at_once or request.adapter or not found.have_prefilters):
            acted = await self._looked(turn, request)
        elif found:
            acted = await self._probed(turn, base.after(time.monotonic() - began), found)
        return acted or self._noted(turn, base.after(time.monotonic() - began))

    def _by_words(
        self, turn: Turn, request: Request, found: Candidates | None
    ) -> tuple[Request, Candidates | None]:
        """The request with memory whose scope is the similarity of words, and the candidates that may act
        instead: none if memory acts before the version in use.
        """
        mixed, acting = self._mixed(request, turn.asked), found.acting if found else None
        if mixed is request or acting is None:
            return mixed, found
        if acting.yields_to(turn.asked.recall.items[0].id):
            return mixed, None
        return request if acting.order == "alone" else mixed, found

    async def _candidates(self, turn: Turn) -> Candidates | None:
        """The candidates that may act on the request; None without one. A failure is counted."""
        assert self._router, "routes are made by a router"
        try:
            form, near = self.space.form, self.space.near
            is_mixed = form in MIXTURES and turn.asked.nearest.within(COARSE)
            near = near.of(form) if near and is_mixed else None
            found = await self._router.candidates(near, adapts=turn.adapts)
        except CamelidError as error:
            self.space.failed(error)
            return None
        return found if found.scopes else None

    async def _looked(self, turn: Turn, request: Request) -> Request | None:
        """The request with the adapter or mixer that acts on it, its programs compiled; None without one.

        A failure is counted.
        """
        assert self._router, "routes are made by a router"
        began, bare = time.monotonic(), replace(request, mixer=None, probe=None)
        found = await self._candidates(turn)  # anew: a version may have been taken back since
        if found is None:
            return None
        try:
            acted = await self._router.looked(bare, found, partial(self.mixed_nearest, bare))
            await self._router.side.access.prepare(acted)
        except CamelidError as error:
            self.space.failed(error)
            return None
        return self._noted(turn, acted.after(time.monotonic() - began)) if acted is not bare else None

    async def _probed(self, turn: Turn, request: Request, found: Candidates) -> Request | None:
        """The request with a probe; None if its program cannot be compiled, which is counted.

        An answer that another one replaces is not noted.
        """
        from camelid.learning.trained.routing import ScopeProbe  # NumPy, which a page lacks

        assert self._router, "routes are made by a router"
        kernels, look = self.space.memory.kernels, partial(self._looked, turn)
        probe = ScopeProbe(kernels=kernels, candidates=found, vector=turn.asked.vector, look=look)
        try:
            await self._router.side.access.prepare(replace(request, probe=probe))
        except CamelidError as error:
            self.space.failed(error)
            return None
        return self._noted(turn, replace(request, probe=probe), probe)

    def _noted(self, turn: Turn, request: Request, probe: ScopeProbe | None = None) -> Request:
        def seen(done: Completion) -> None:
            note = partial(self._note, turn, request, done)
            probe.if_kept(note) if probe else note()

        return watched(request, seen, turn.name)

    def mixed_nearest(self, request: Request, nearest: Sequence[int]) -> Request:
        """The request with the mixture of these items' contexts, if those of one are known."""
        mixer = None if request.proposer else self.space.memory.mixer_of(nearest, request.n_prompt)
        return replace(request, mixer=mixer) if mixer else request

    def _mixed(self, request: Request, asked: Asked) -> Request:
        is_mixed = asked.form in MIXTURES and asked.recall and not request.proposer
        mixer = self.space.memory.mixer(asked.recall) if is_mixed else None
        return replace(request, mixer=mixer) if mixer else request

    def _note(self, turn: Turn, request: Request, done: Completion) -> None:
        asked = turn.asked
        exchange = Exchange(
            completion_id=done.id, messages=asked.messages, tools=asked.tools, answer=answer_message(done),
            prompt_ids=request.prompt_ids, answer_ids=tuple(done.token_ids),
            is_learnt=turn.has_turns or bool(request.mixer or (turn.adapts and request.adapter)),
            is_undecided=turn.is_undecided,
        )  # fmt: skip
        self._recent[done.id] = exchange
        if len(self._recent) > MOST_RECENT:
            self._recent.popitem(last=False)
        self.space.note(exchange, self.side.vector(exchange.question))

    def exchange(self, completion: Completion | str) -> Exchange:
        """The exchange of a completion or its id. Raises RequestError for one that is not known."""
        id = completion if isinstance(completion, str) else completion.id
        found = self._recent.get(id) or (self.space.store.request(id) if self.space.store else None)
        if found is None:
            raise RequestError(
                f"the completion {shown(id)} is not known here: it was made without learning, by another "
                "user, or too many requests ago",
                field="completion", reason="unknown",
            )  # fmt: skip
        return found

    def feedback(
        self, completion: Completion | str, rating: int, correction: object = None, source: str = "local"
    ) -> Item:
        """Stores feedback, which acts at once as an earlier turn; `settle` lets it act as a mixture.

        Raises RequestError for a malformed rating or correction, an approved call that its tool refuses, an
        unknown completion, and beyond the source's quota; LearningError if it cannot be stored.
        """
        rating, right = checked_rating(rating), checked_correction(correction)
        exchange = self.exchange(completion)
        item = Item(exchange=exchange, rating=rating, correction=right, source=source)
        check_calls(item)
        return self.space.feedback(item, self.side.vector(exchange.question))

    async def settle(self) -> int:
        """Computes the contexts of items that lack them, behind other requests; returns how many did."""
        n, self._settled_of = 0, self.space.memory.n_changes
        try:
            for item in self.space.memory.without_contexts()[:MOST_PENDING]:
                n += await self._add_contexts(item)
            async with self._fitting:
                await self._fit()
        except CamelidError as error:
            self.space.failed(error)  # the feedback is stored; the similarity of words decides
            self._failed = True
        return n

    async def _add_contexts(self, item: Item) -> bool:
        """Computes the contexts of an item; False for a conversation that no longer fits the model."""
        assert item.approved, "an item that acts has a right answer"
        found = await self.side.contexts(item.exchange, item.approved, self.space.memory.kernels)
        return found is not None and self.space.set_contexts(item, found)

    @property
    def is_settled(self) -> bool:
        """False if another `settle` would read prompts that the time of the latest was too short for."""
        scope = self._memory_scope
        return scope is None or self._failed or self.space.has_whole_scope or scope.is_whole

    @property
    def is_outdated(self) -> bool:
        """True if items came or were forgotten since the latest `settle`, such as by another process."""
        self.space.refresh()
        return self._settled_of != self.space.memory.n_changes

    async def settle_all(self) -> None:
        """As `settle`, until all prompts are read."""
        await self.settle()
        while not self.is_settled:
            await self.settle()

    async def _fit(self) -> None:
        """Fits the scope of memory, if it has none for the items that act now, or one of some prompts."""
        scope = self._memory_scope
        if scope is None or self.space.has_whole_scope:
            return
        self._failed, (n_changes, acting) = False, self.space.to_fit()
        past = await asyncio.to_thread(lambda: self.space.past)
        near = await scope.fit(acting, past, FIT_S)
        self.space.set_near(near, n_changes, is_whole=scope.is_whole)

    def forget(self, id: int) -> Forgotten | None:
        """Forgets an item and the answers of this process with its completion. Raises RequestError for an
        unknown one, LearningError.
        """
        self._drop(self.space.item(id).exchange.completion_id)
        return self.space.forget(id)

    async def aforget(self, id: int) -> Forgotten | None:
        """As `forget`; another thread does the work of the store."""
        self._drop(self.space.item(id).exchange.completion_id)
        return await asyncio.to_thread(self.space.forget, id)

    def _drop(self, completion_id: str) -> None:
        self._recent.pop(completion_id, None)
        if self._memory_scope:
            self._memory_scope.forget(completion_id)


def _messages(prompt: object) -> tuple[Message, ...]:
    """The messages of a prompt; of a text one message without a role. None for token ids and images."""
    if isinstance(prompt, str):
        return ({"content": prompt},)
    if not isinstance(prompt, Sequence):
        return ()
    items = cast("Sequence[object]", prompt)
    if not items or not all(isinstance(item, Mapping) for item in items):
        return ()
    messages = cast("Sequence[Message]", items)
    return tuple(messages) if all(_is_text(message.get("content")) for message in messages) else ()


def _is_text(content: object) -> bool:
    if not isinstance(content, list):
        return content is None or isinstance(content, str)
    parts = cast("list[object]", content)
    return all(isinstance(part, Mapping) and "text" in part for part in parts)

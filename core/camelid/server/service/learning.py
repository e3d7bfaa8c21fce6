"""Learning in a server: a space for each key, opened on first use."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from camelid.api.learning import learner_of, open_space
from camelid.api.learnt.runs import open_background
from camelid.api.load import aload_with
from camelid.engine.request import Request
from camelid.learning.background import Background
from camelid.learning.learner import Learner
from camelid.learning.model_side import EngineAccess, EngineSide
from camelid.learning.retention import Check
from camelid.learning.space import Space
from camelid.requests.build import RequestBuilder
from camelid.requests.output_text import Completion
from camelid.server.http.errors import ApiError
from camelid.server.http.keys import Key
from camelid.server.service.host import EngineHost

MOST_OPEN = 64  # spaces with an open store; the longest unused is closed
LOCAL = "local"  # the space of a server without keys


def space_name(key: Key) -> str:
    """The space of a key: of its hash, since a name may be given to another key later."""
    return f"key-{hashlib.sha256(key.digest).hexdigest()[:32]}" if key.digest else LOCAL


@dataclass(slots=True, eq=False)
class Learners:
    """The learners of one model, one for each key; none sees another's store. The gate of each asks the
    `checks`.
    """

    host: EngineHost
    builder: RequestBuilder
    base: asyncio.Future[str]
    folder: Path | None = None
    checks: tuple[Check, ...] = ()
    _open: OrderedDict[str, Learner] = field(default_factory=OrderedDict[str, Learner])
    _training: dict[str, Background] = field(default_factory=dict[str, Background])
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _settling: dict[asyncio.Task[None], Learner] = field(default_factory=dict[asyncio.Task[None], Learner])

    async def of(self, key: Key) -> Learner:
        """The learner of a key. Raises LearningError for a store that cannot be opened."""
        name = space_name(key)
        async with self._lock:  # two requests open a store once
            found = self._open.get(name)
            if found is None:
                space = await asyncio.to_thread(open_space, name, await self.base, self.folder)
                side = EngineSide(self.builder, EngineAccess(self.host.running, self._ran, self.host.call))
                found = self._open[name] = learner_of(space, side)
                self._train(name, space)
            if found.is_outdated and found not in self._settling.values():
                self.settle(found)
            self._open.move_to_end(name)
            while len(self._open) > MOST_OPEN:
                await self._close(*self._open.popitem(last=False))
        return found

    def _train(self, name: str, space: Space) -> None:
        """Trains adapters from a key's feedback while no request runs, as the load option `learn` asks."""
        running = self.host.running
        if running.options.learn == "on":
            load, engine = partial(aload_with, self.host.model), running.engine
            self._training[name] = open_background(
                load, running.options, space, lambda: not engine.is_idle, self.checks
            )

    async def _close(self, name: str, learner: Learner) -> None:
        settling = [task for task, own in self._settling.items() if own is learner]
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)
        background = self._training.pop(name, None)
        if background:
            await asyncio.to_thread(background.close)
        await asyncio.to_thread(learner.space.close)

    async def _ran(self, request: Request) -> tuple[Sequence[Any], Completion]:
        """The rows and the completion of a request."""
        answer, found, completion = self.host.submit(request), list[Any](), None
        try:
            async for batch in answer:
                if batch.error:
                    raise batch.error
                found += batch.scores
                completion = batch.completion or completion
        finally:
            answer.close()
        assert completion, "a request without an error has a completion"
        return found, completion

    def settle(self, learner: Learner) -> None:
        """Computes contexts of new items later, behind all other requests."""
        task = asyncio.get_running_loop().create_task(learner.settle_all())
        self._settling[task] = learner
        task.add_done_callback(self._settling.pop)

    async def close(self) -> None:
        """Ends the work under way and closes the stores."""
        while self._open:
            await self._close(*self._open.popitem())


def quota_error(facts: Mapping[str, Any], message: str) -> ApiError:
    """The reply to feedback beyond a key's quota."""
    seconds = str(max(round(float(facts.get("retry_s", 1.0))), 1))
    headers = {"retry-after": seconds, "x-should-retry": "true"}
    return ApiError(429, message, code="feedback_quota", headers=headers)

"""One replica: the server's ASGI application, called with whole requests instead of a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray.serve as serve

from camelid.errors import BackendError
from camelid.loading.options import LoadOptions
from camelid.ray.affinity import Affinity, tag_of
from camelid.ray.heads import Heads
from camelid.ray.scaling import PLACES
from camelid.ray.stages import Cut, Stages
from camelid.server.app import App
from camelid.server.http.guard import Guard
from camelid.server.http.keys import KeyRing, plain_keys
from camelid.server.server import Server
from camelid.server.service.limits import Limits
from camelid.server.service.models import ModelRow, Models
from camelid.server.service.response_store import ResponseStore
from camelid.server.service.watch import watch

MAX_BODY = 16 << 20
STAGES_BACK_S = 180.0  # that a lost stage may take until the replica is replaced whole
MAX_REPORTED = 512  # hashes of a report: 10 kB as Ray pickles them
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Setup:
    """Models and settings of every replica."""

    model: str
    words: Mapping[str, Any]
    max_queue: int
    api_keys: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset({"localhost"})
    origins: frozenset[str] = frozenset()
    cut: Cut = field(default_factory=Cut)

    def server(self, stages: Stages | None, tag: str) -> Server:
        """The server of the replica `tag`, with its model not yet loaded."""
        name = Path(self.model).stem if self.model != "cria" else self.model
        row = ModelRow(name, self.model, LoadOptions.of(**self.words), max_queue=self.max_queue)
        row = replace(row, stages=stages.backends) if stages else row
        guard = Guard(KeyRing(plain_keys(self.api_keys)), MAX_BODY, self.hosts, self.origins)
        return Server(Models({name: row}, Limits()), guard, responses=ResponseStore(tag=tag))


class Replica:
    """A server in a Ray actor. Ray awaits its construction, so a replica is ready when its model is."""

    async def __init__(self, setup: Setup) -> None:  # type: ignore[misc]  # Ray awaits it
        self._stages = Stages(setup.cut) if setup.cut.n > 1 else None
        tag = tag_of(serve.get_replica_context().replica_id.unique_id)
        self.server = setup.server(self._stages, tag)
        self._app, self._heads = App(self.server), Heads()
        self._well = time.monotonic()  # when its engine was last seen to work
        self._watch = asyncio.ensure_future(watch(self.server.models)) if self._stages else None
        await self.server.models.load(self.server.models.default)
        self.server.phase = "ready"

    async def answer(
        self, affinity: Affinity, scope: dict[str, Any], body: bytes
    ) -> AsyncGenerator[Messages, None]:
        """The ASGI messages of one reply, one batch a step. Closing it cancels the request."""
        self._heads.add(affinity.head)
        reply = Reply(body)
        work = asyncio.ensure_future(self._app(scope, reply.receive, reply.send))
        work.add_done_callback(reply.end)
        try:
            while messages := await reply.take():
                yield messages
            await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    def check_health(self) -> None:
        """Raises if the engine has ended or its device is lost; Ray then restarts the replica.

        A lost stage is another actor: Ray restarts it, and the watch loads the model again meanwhile.
        """
        now, lost = time.monotonic(), self.server.models.lost
        if not lost:
            self._well = now
        elif self._stages is None or now > self._well + STAGES_BACK_S:
            raise BackendError(f"the engine of {lost[0]} failed and cannot serve", backend="ray")

    def record_routing_stats(self) -> dict[str, Any]:
        """Requests under way, and the latest heads, for routers in other gates."""
        return {"n_places": self.server.models.n_places, "heads": self._heads.latest(MAX_REPORTED)}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The places taken, by which Ray scales."""
        return {PLACES: self.server.models.n_places}

    async def close(self) -> None:
        """Ends the engine; Ray has waited for the requests under way."""
        self.server.phase = "draining"
        self.server.models.drain()
        if self._watch:
            self._watch.cancel()
        await self.server.models.close()
        if self._stages:
            self._stages.close()

    __del__ = close  # Ray awaits it before it ends the actor


@dataclass(slots=True)
class Reply:
    """The two ends of one call of the ASGI application."""

    body: bytes
    _messages: Messages = field(default_factory=Messages)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _is_read: bool = False
    _is_ended: bool = False

    async def receive(self) -> dict[str, Any]:
        """The body, then nothing: a client that leaves cancels the call."""
        if self._is_read:
            await asyncio.get_running_loop().create_future()
        self._is_read = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: Any) -> None:
        """Adds a message to the next batch."""
        self._messages.append(dict(message))
        self._ready.set()

    def end(self, work: asyncio.Future[None]) -> None:  # noqa: ARG002 - a callback's argument
        """Marks the application's end."""
        self._is_ended = True
        self._ready.set()

    async def take(self) -> Messages:
        """All messages since the last call; [] at the end."""
        while not self._messages and not self._is_ended:
            self._ready.clear()
            await self._ready.wait()
        messages, self._messages = self._messages, []
        return messages

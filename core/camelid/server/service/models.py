"""The models that a server offers: loaded on first use, within a memory bound, unloaded when idle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextvars import Context
from typing import Any

from camelid.api.learn_checks import checks_of
from camelid.formats.progress import Progress
from camelid.server.http.errors import ApiError, retry_later
from camelid.server.service.admission import Admission
from camelid.server.service.entry import FIRST_PAUSE_S, Entry, State
from camelid.server.service.file_mark import mark_of
from camelid.server.service.host import EngineHost
from camelid.server.service.limits import Limits
from camelid.server.service.memory import Memory, never_fits, no_room
from camelid.server.service.rows import ModelRow
from camelid.server.service.service import Observer, Service

LOG = logging.getLogger("camelid.server")
Rows = Mapping[str, ModelRow]
Open = Callable[[ModelRow, Progress | None], Awaitable[Service]]
POLL_S = 0.05  # between looks at a service whose last requests end
CLOSE_S = 10.0  # longest time to close an engine that may have failed
EXPIRE_S = 0.5  # until another look at a model that a request waits for


class Models:
    """All models by name; the first is the default.

    `scan` lists the models of a folder, which may change while the server runs; `fixed` are the names of the
    others.
    """

    def __init__(
        self,
        rows: Rows,
        limits: Limits,
        observers: tuple[Observer, ...] = (),
        now: Callable[[], float] = time.monotonic,
        *,
        memory: Memory | None = None,
        fixed: frozenset[str] | None = None,
        scan: Callable[[], Rows] | None = None,
        open_service: Open | None = None,
    ) -> None:
        self._entries = {name: Entry(row) for name, row in rows.items()}
        self._fixed = frozenset(rows) if fixed is None else fixed
        self._limits, self.now, self._scan = limits, now, scan
        self.observers = observers
        self.on_load: list[Callable[[Service], Awaitable[object] | None]] = []  # called with each new service
        self._open = open_service or self._open_engine
        self.memory = memory or Memory()
        self._room = asyncio.Lock()
        self._tasks = set[asyncio.Task[None]]()
        self._ending = set[asyncio.Task[None]]()  # of `_tasks`: services that are being closed
        self._closing = set[Service]()  # replaced or unloaded, but requests still use them
        self.is_draining = False

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def default(self) -> Entry:
        """The model of requests that name none. Raises ApiError 404 if none is offered."""
        found = next(iter(self._entries.values()), None)
        if found is None:
            raise ApiError(404, "no model is offered here", code="model_not_found", param="model")
        return found

    @property
    def first(self) -> Entry | None:
        """The model to load at the start: the first that is no folder's."""
        return next((entry for entry in self if entry.row.name in self._fixed), None)

    @property
    def is_single(self) -> bool:
        """True if one model is all that this server will ever offer."""
        return len(self._entries) == 1 and self._scan is None

    def find(self, name: str | None) -> Entry:
        """The entry of a name or alias, or of an adapter. Raises ApiError 404, with the known names."""
        found = self._lookup(name)
        if found is None:
            known = ", ".join(self._entries)
            raise ApiError(
                404, f"the model {name!r:.200} does not exist here; known: {known:.1000}",
                code="model_not_found", param="model",
            )  # fmt: skip
        return found

    def _lookup(self, name: str | None) -> Entry | None:
        if not name:
            return self.default
        found = self._entries.get(name) or next((e for e in self if name in e.row.aliases), None)
        return found or next((entry for entry in self if entry.adapter(name)), None)

    async def known(self, name: str | None) -> Entry:
        """As `find`, after another look at the folder for an unknown name."""
        if name and self._lookup(name) is None:
            await self.rescan()
        return self.find(name)

    async def rescan(self) -> None:
        """Adds the folder's new models, and drops missing models that are not loaded."""
        if self._scan is None:
            return
        rows = await asyncio.to_thread(self._scan)
        for name, row in rows.items():
            self._entries.setdefault(name, Entry(row))
        for name in self._entries.keys() - rows.keys() - self._fixed:
            if self._entries[name].state in ("unloaded", "failed"):
                del self._entries[name]

    async def service(self, name: str | None) -> Service:
        """The service of a model, loaded if it is not.

        Raises ApiError 404, 503 if the model cannot be loaded now, and as `camelid.load`.
        """
        entry = await self.known(name)
        entry.used = self.now()
        if entry.n_waiting >= entry.row.options.parallel + entry.row.max_queue:
            raise retry_later(
                503, f"the server is full: {entry.n_waiting} requests wait for {entry.row.name!r} to load",
                5, "server_is_overloaded",
            )  # fmt: skip
        entry.n_waiting += 1
        try:
            while (service := entry.service) is None or service.host.failure:
                await self.load(entry)
                LOG.info("the model %s was loaded for a request", entry.row.name)
        finally:
            entry.n_waiting -= 1
        return service

    async def load(self, entry: Entry, progress: Progress | None = None) -> None:
        """Loads a model, or one whose engine failed again; concurrent calls load it once.

        A caller that is cancelled cancels no load. Raises as `camelid.load`, and ApiError 503.
        """
        if self.is_draining:
            raise retry_later(503, "the server is shutting down", 1, "shutting_down")
        if entry.loading is None or entry.loading.done():
            entry.loading = self.spawn(self._load(entry, progress))
        loading = entry.loading
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            if loading.cancelled() and not self.is_draining:
                raise retry_later(
                    503, f"{entry.row.name!r} was unloaded while loading", 1, "unloaded"
                ) from None
            raise

    async def _load(self, entry: Entry, progress: Progress | None) -> None:
        async with entry.lock:
            if entry.service and not entry.service.host.failure:
                return
            if entry.service:
                lost = self._detach(entry)
                entry.is_lost = True  # until another engine takes its place
                await self._close(lost)
            await self._start(entry, progress)

    async def _start(self, entry: Entry, progress: Progress | None = None) -> None:
        """Loads a model into its entry; the old service, if any, goes on with its requests alone."""
        entry.state = "loading"
        try:
            service = await self._loaded(entry, progress)
        except BaseException as error:
            entry.state = "loaded" if entry.service else self._failed(entry, error)
            raise
        old = self._detach(entry)
        entry.service, entry.state, entry.error, entry.is_lost = service, "loaded", None, False
        entry.context, entry.pause_s, entry.used = service.context, FIRST_PAUSE_S, self.now()
        service.watch_idle(lambda: self._ended(entry, service))
        self._await_idle(entry)
        if old:
            self.spawn(self._retire(old))

    def _failed(self, entry: Entry, error: BaseException) -> State:
        """The state after a load that failed. That there is no room now is no fault of the model."""
        if not isinstance(error, Exception) or isinstance(error, ApiError):
            return "failed" if entry.is_lost else "unloaded"
        entry.error = error
        return "failed"

    async def _loaded(self, entry: Entry, progress: Progress | None) -> Service:
        """A new service, whose bytes are held from before its load until it is closed."""
        place, mark = object(), mark_of(entry.row.file)
        here = entry.row.stages is None  # stages have memory of their own
        n_bytes = await self.memory.need(entry.row.file, entry.row.options) if here else 0
        async with self._room:
            await self._make_room(entry, n_bytes)
            self.memory.held[place] = n_bytes
        try:
            service = await self._open(entry.row, progress)
        except BaseException:
            self.memory.held.pop(place)
            raise
        self.memory.held[service] = self.memory.held.pop(place)
        entry.n_bytes, entry.mark = n_bytes, mark
        return service

    async def _open_engine(self, row: ModelRow, progress: Progress | None) -> Service:
        checks = await checks_of(row.options)
        host = await EngineHost.open(row.file, row.options, progress, row.stages)
        admission = Admission(row.options.parallel, row.max_queue)
        try:
            service = Service(
                row.name, host, admission, self._limits, self.observers, defaults=row.defaults,
                template=row.template, variables=row.variables,
            )  # fmt: skip
            if row.thinks is not None:
                service.turn_thoughts(on=row.thinks)
            service.check_defaults()
            if service.learners:
                service.learners.checks = checks
            for notice in self.on_load:
                if waiting := notice(service):
                    await waiting
            return service
        except BaseException:
            await host.close()
            raise

    async def _make_room(self, entry: Entry, need: int) -> None:
        """Unloads idle models, the longest idle first, until so many bytes are free.

        Raises ApiError 400 if it can never fit, 503 if models that work are in the way.
        """
        bound = self.memory.bound
        if bound is None:
            return
        kept = sum(self.memory.held.get(e.service, 0) for e in self if e.row.is_pinned and e is not entry)
        if need + kept > bound:
            raise never_fits(entry.row.name, need, bound, kept)
        while self.memory.n_held + need > bound:
            victims = [e for e in self if e.is_idle and e is not entry and not e.row.is_pinned]
            if not victims:
                waits = [e.service.admission.wait_s for e in self if e.service and e.n_places]
                raise no_room(entry.row.name, need, bound, self.memory.n_held, min(waits, default=1.0))
            victim = min(victims, key=lambda e: e.used)
            LOG.info("the model %s is unloaded to make room for %s", victim.row.name, entry.row.name)
            await self.unload(victim)

    async def unload(self, entry: Entry) -> None:
        """Unloads a model, or ends its load. Requests under way end first; later ones load it again."""
        if entry.loading and entry.state == "loading":
            entry.loading.cancel()
        service = self._detach(entry)
        if service and service.n_places:
            self.spawn(self._retire(service))
        elif service:
            await self._close(service)

    def _detach(self, entry: Entry) -> Service | None:
        """Takes the service from its entry: no further request gets it."""
        service, entry.service = entry.service, None
        if entry.timer:
            entry.timer.cancel()
        if entry.state != "loading":
            entry.state, entry.is_lost = "unloaded", False
        if service:
            self._closing.add(service)
        return service

    async def _retire(self, service: Service) -> None:
        """Closes a service once its requests have ended."""
        while service.n_places and not service.host.failure:
            await asyncio.sleep(POLL_S)
        await self._close(service)

    async def _close(self, service: Service | None) -> None:
        """Closes a service in a task of its own, which no client that leaves interrupts."""
        if service:
            ending = self.spawn(self._end(service))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)

    async def _end(self, service: Service) -> None:
        """Closes a service within `CLOSE_S`, and frees its bytes."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await service.close()
        except Exception as error:
            LOG.error("%s could not be closed: %s", service.name, error)
        finally:
            self._closing.discard(service)
            self.memory.held.pop(service, None)

    async def reload(self, entry: Entry) -> bool:
        """Replaces a loaded model whose file changed; True if it did. No request is lost.

        Requests under way end on the old one. Where both do not fit, the old one is unloaded first if it is
        idle. Raises as `load`; the old one then stays, unless it made room.
        """
        async with entry.lock:
            if entry.service is None or mark_of(entry.row.file) == entry.mark:
                return False
            try:
                await self._start(entry)
            except ApiError as error:
                if error.status != 503 or not entry.is_idle:
                    raise
                await self._close(self._detach(entry))
                await self._start(entry)
            return True

    async def refresh(self) -> None:
        """Looks at the folder, and replaces loaded models whose files changed; faults go to the log."""
        await self.rescan()
        for entry in list(self):
            try:
                if await self.reload(entry):
                    LOG.warning("the model %s was loaded again", entry.row.name)
            except Exception as error:
                LOG.error("the model %s keeps its old file: %s", entry.row.name, error)

    def keep(self, entry: Entry, seconds: float) -> None:
        """Sets the idle time of a model until the next call; 0 unloads it once it is idle, -1 never."""
        entry.keep_s = seconds
        self._await_idle(entry)

    def _ended(self, entry: Entry, service: Service) -> None:
        """The last request of a service ended: its model's idle time begins."""
        if entry.service is service:
            entry.used = self.now()
            self._await_idle(entry)

    def _await_idle(self, entry: Entry) -> None:
        """Starts the idle time of a model without requests."""
        if entry.timer:
            entry.timer.cancel()
        if entry.service and not entry.n_places and entry.keep_alive_s >= 0 and not entry.row.is_pinned:
            entry.timer = self._later(entry.keep_alive_s, entry)

    def _later(self, seconds: float, entry: Entry) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(seconds, self._expire, entry, context=Context())

    def _expire(self, entry: Entry) -> None:
        if entry.is_idle:
            LOG.info("the model %s was idle and is unloaded", entry.row.name)
            self.spawn(self.unload(entry))
        elif entry.service:  # a request came that may never be submitted
            entry.timer = self._later(max(entry.keep_alive_s, EXPIRE_S), entry)

    @property
    def lost(self) -> list[str]:
        """Names of the models whose engines failed and are not replaced yet."""
        return [e.row.name for e in self if e.is_lost or (e.service and e.service.host.failure)]

    def drain(self) -> None:
        """Refuses new requests; running requests go on."""
        self.is_draining = True
        for service in self._services():
            service.drain()

    def _services(self) -> list[Service]:
        return [*(entry.service for entry in self if entry.service), *self._closing]

    @property
    def n_places(self) -> int:
        """Requests under way."""
        return sum(service.n_places for service in self._services())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts work that `close` ends; a task that awaits it gets its error.

        Its context is not that of the request that needs it: the request's record would live as long.
        """
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read, else asyncio reports an error that nobody awaits any more

    async def close(self) -> None:
        """Ends every service, and every load under way."""
        running = list(self._tasks)
        for task in {*running} - self._ending:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for entry in self:
            self._detach(entry)
        await asyncio.gather(*(self._close(service) for service in list(self._closing)))

"""Models within a memory bound, with services that hold bytes but no engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from camelid.errors import ModelFormatError
from camelid.formats.progress import Progress
from camelid.loading.options import LoadOptions
from camelid.server.http.errors import ApiError
from camelid.server.service.admission import Admission
from camelid.server.service.limits import Limits
from camelid.server.service.memory import Memory
from camelid.server.service.models import Models
from camelid.server.service.rows import ModelRow
from camelid.server.service.service import Service


@dataclass
class FakeHost:
    failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.failure = error


@dataclass(eq=False)
class FakeService:
    """A service whose closing is recorded, and may wait."""

    name: str
    world: World
    admission: Admission = field(default_factory=lambda: Admission(4, 4))
    host: FakeHost = field(default_factory=FakeHost)
    context: int = 64

    @property
    def n_places(self) -> int:
        return self.admission.n_places

    def watch_idle(self, callback: Callable[[], object]) -> None:
        self.admission.on_idle = callback

    def drain(self) -> None:
        self.admission.is_draining = True

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.world.log.append(f"close {self.name}")


@dataclass
class World:
    """Models with the sizes of their names: `a3` holds 3 bytes."""

    limit: int | None = 10
    log: list[str] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)
    gate: asyncio.Event | None = None
    clock: float = 0.0

    def models(self, *names: str, **more: Any) -> Models:
        rows = {name: ModelRow(name, name, LoadOptions(parallel=2), max_queue=1, **more) for name in names}
        memory = SizedMemory(self.limit, lambda: None)
        return Models(rows, Limits(), now=self.now, memory=memory, open_service=self.open)

    def now(self) -> float:
        self.clock += 1
        return self.clock

    async def open(self, row: ModelRow, progress: Progress | None) -> Service:
        self.log.append(f"open {row.name}")
        await asyncio.sleep(0)
        if self.gate:
            await self.gate.wait()
        if row.name in self.errors:
            raise self.errors[row.name]
        return cast("Service", FakeService(row.name, self))


class SizedMemory(Memory):
    async def need(self, file: str, options: LoadOptions) -> int:
        return int(file[1:])


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await work()

    asyncio.run(bounded())


def loaded(models: Models) -> list[str]:
    return [entry.row.name for entry in models if entry.state == "loaded"]


def test_the_longest_idle_model_makes_room() -> None:
    async def work() -> None:
        world = World(limit=10)
        models = world.models("a4", "b4", "c4", "d8")
        for name in ("a4", "b4", "a4", "c4"):  # b4 is idle for longer than a4
            await models.service(name)
        assert loaded(models) == ["a4", "c4"]
        assert world.log == ["open a4", "open b4", "close b4", "open c4"]
        await models.service("d8")
        assert loaded(models) == ["d8"]
        assert world.log[4:] == ["close a4", "close c4", "open d8"]
        assert models.memory.n_held == 8

    run(work)


def test_a_working_model_is_never_unloaded() -> None:
    async def work() -> None:
        world = World(limit=10)
        models = world.models("a4", "b4", "c4", "d8")
        a, b = await models.service("a4"), await models.service("b4")
        place = a.admission.enter(1)
        await models.service("c4")
        assert loaded(models) == ["a4", "c4"]
        with pytest.raises(ApiError) as refused:
            await models.service("d8")
        assert refused.value.status == 503
        assert int(refused.value.headers["retry-after"]) >= 1
        assert "needs 8 bytes, but models that work hold 4 of 10" in refused.value.message
        assert models.find("d8").state == "unloaded"
        assert models.find("a4").service is a
        place.leave()
        await models.service("d8")
        assert loaded(models) == ["d8"]
        assert b.name == "b4"

    run(work)


def test_a_model_that_can_never_fit_is_refused_with_both_numbers() -> None:
    async def work() -> None:
        world = World(limit=10)
        models = world.models("a4", "x11")
        await models.service("a4")
        with pytest.raises(ApiError, match="needs 11 bytes, but all models may hold 10") as refused:
            await models.service("x11")
        assert (refused.value.status, refused.value.code) == (400, "model_too_large")
        assert loaded(models) == ["a4"]  # it was not unloaded in vain

    run(work)


def test_pinned_models_stay() -> None:
    async def work() -> None:
        world = World(limit=10)
        models = world.models("a4", "b4", "c7")
        models.find("a4").row = ModelRow("a4", "a4", is_pinned=True, keep_alive_s=0)
        for name in ("a4", "b4"):
            await models.service(name)
        with pytest.raises(ApiError, match="never unloaded hold 4") as refused:
            await models.service("c7")
        assert refused.value.status == 400
        await asyncio.sleep(0.02)
        assert loaded(models) == ["a4", "b4"]

    run(work)


def test_concurrent_requests_load_once_and_one_that_leaves_ends_no_load() -> None:
    async def work() -> None:
        world = World(limit=10, gate=asyncio.Event())
        models = world.models("a4")
        waiting = [asyncio.ensure_future(models.service("a4")) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError, match="3 requests wait") as full:
            extra = asyncio.ensure_future(models.service("a4"))
            await asyncio.sleep(0)
            await models.service("a4")
        assert full.value.status == 503
        assert world.gate is not None
        world.gate.set()
        services = await asyncio.gather(*waiting[1:], extra)
        assert len(set(map(id, services))) == 1
        assert world.log == ["open a4"]

    run(work)


def test_loads_beside_each_other_do_not_exceed_the_bound() -> None:
    async def work() -> None:
        world = World(limit=10, gate=asyncio.Event())
        models = world.models("a6", "b6")
        first = asyncio.ensure_future(models.service("a6"))
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError) as refused:
            await models.service("b6")
        assert refused.value.status == 503
        assert world.gate is not None
        world.gate.set()
        await first
        await models.service("b6")
        assert world.log == ["open a6", "close a6", "open b6"]

    run(work)


def test_a_load_that_fails_frees_its_bytes_and_is_tried_again() -> None:
    async def work() -> None:
        world = World(limit=10, errors={"a4": ModelFormatError("not a model")})
        models = world.models("a4")
        entry = models.find("a4")
        for _ in range(2):
            with pytest.raises(ModelFormatError):
                await models.service("a4")
            assert (entry.state, models.memory.n_held, models.lost) == ("failed", 0, [])
        world.errors.clear()
        await models.service("a4")
        assert (entry.state, entry.error) == ("loaded", None)

    run(work)


def test_keep_alive_unloads_a_model_once_it_is_idle() -> None:
    async def work() -> None:
        world = World()
        models = world.models("a4", keep_alive_s=0.5)
        service = await models.service("a4")
        place = service.admission.enter(1)
        await asyncio.sleep(0.7)
        assert loaded(models) == ["a4"]  # it works
        place.leave()
        await asyncio.sleep(0.05)
        assert loaded(models) == ["a4"]
        async with asyncio.timeout(20):
            while "close a4" not in world.log:
                await asyncio.sleep(0.02)
        assert world.log == ["open a4", "close a4"]
        assert models.find("a4").context == 64  # known without another load

    run(work)


@pytest.mark.parametrize(("seconds", "stays"), [(0, False), (-1, True), (0.01, False), (60, True)])
def test_a_request_sets_the_idle_time(seconds: float, stays: bool) -> None:
    async def work() -> None:
        world = World()
        models = world.models("a4", keep_alive_s=-1 if not stays else 0.01)
        service = await models.service("a4")
        entry, place = models.find("a4"), service.admission.enter(1)
        models.keep(entry, seconds)
        await asyncio.sleep(0.03)
        assert loaded(models) == ["a4"]  # not while the request runs
        place.leave()
        await asyncio.sleep(0.03)
        assert (loaded(models) == ["a4"]) is stays

    run(work)


def test_unloading_lets_requests_end_and_later_ones_load_again() -> None:
    async def work() -> None:
        world = World()
        models = world.models("a4")
        old = await models.service("a4")
        place = old.admission.enter(1)
        await models.unload(models.find("a4"))
        assert (loaded(models), models.n_places, models.memory.n_held) == ([], 1, 4)
        new = await models.service("a4")
        assert new is not old
        assert "close a4" not in world.log
        place.leave()
        await asyncio.sleep(0.1)
        assert (world.log, models.memory.n_held) == (["open a4", "open a4", "close a4"], 4)

    run(work)


def test_unloading_ends_a_load() -> None:
    async def work() -> None:
        world = World(gate=asyncio.Event())
        models = world.models("a4")
        waiting = asyncio.ensure_future(models.service("a4"))
        await asyncio.sleep(0.01)
        await models.unload(models.find("a4"))
        with pytest.raises(ApiError, match="unloaded while loading") as refused:
            await waiting
        assert (refused.value.status, models.memory.n_held) == (503, 0)
        assert models.find("a4").state == "unloaded"

    run(work)


def test_draining_refuses_models_that_are_not_loaded() -> None:
    async def work() -> None:
        world = World()
        models = world.models("a4", "b4")
        service = await models.service("a4")
        place = service.admission.enter(1)
        models.drain()
        for name in ("a4", "b4"):
            with pytest.raises(ApiError, match="shutting down") as refused:
                (await models.service(name)).admission.enter(1)
            assert (refused.value.status, "retry-after" in refused.value.headers) == (503, True)
        assert models.n_places == 1
        place.leave()
        await models.close()
        assert world.log == ["open a4", "close a4"]

    run(work)


def test_a_folder_is_looked_at_for_an_unknown_name() -> None:
    async def work() -> None:
        world = World()
        rows = {"a4": ModelRow("a4", "a4")}
        models = Models(
            {}, Limits(), memory=SizedMemory(10, lambda: None), open_service=world.open, scan=lambda: rows
        )
        with pytest.raises(ApiError, match="no model is offered"):
            models.find(None)
        with pytest.raises(ApiError, match="does not exist here; known: a4"):
            await models.service("b4")
        await models.service("a4")
        rows.clear()
        rows["b4"] = ModelRow("b4", "b4")
        await models.rescan()
        assert [entry.row.name for entry in models] == ["a4", "b4"]  # a4 is loaded
        await models.unload(models.find("a4"))
        await models.rescan()
        assert [entry.row.name for entry in models] == ["b4"]

    run(work)

"""Models whose files change, and engines that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.server.test_models import World, run

from camelid.errors import BackendError, DeviceLostError, ModelFormatError
from camelid.loading.options import LoadOptions
from camelid.server.http.errors import ApiError
from camelid.server.service import watch as watching
from camelid.server.service.models import Models
from camelid.server.service.rows import ModelRow


def changed_models(tmp_path: Path, world: World, size: int = 4) -> tuple[Models, Path]:
    file = tmp_path / "model.gguf"
    file.write_text("old")
    models = world.models(f"a{size}")
    entry = models.find(f"a{size}")
    entry.row = ModelRow(f"a{size}", str(file), LoadOptions(parallel=2))
    needs(models, size)
    return models, file


def needs(models: Models, size: int) -> None:
    """Sets the bytes that every model needs."""

    async def need(_: str, __: LoadOptions) -> int:
        return size

    models.memory.need = need  # pyright: ignore[reportAttributeAccessIssue]


def test_a_changed_file_is_loaded_beside_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        world = World()
        models, file = changed_models(tmp_path, world)
        entry, old = models.find("a4"), await models.service("a4")
        assert await models.reload(entry) is False
        place = old.admission.enter(1)
        other = file.with_name("new")
        other.write_text("new")
        other.replace(file)
        world.gate = asyncio.Event()
        reloading = asyncio.ensure_future(models.reload(entry))
        await asyncio.sleep(0.05)
        assert await models.service("a4") is old  # until the new one is loaded
        world.gate.set()
        assert await reloading is True
        new = await models.service("a4")
        assert (new is not old, models.n_places, models.memory.n_held) == (True, 1, 8)
        place.leave()
        await asyncio.sleep(0.1)
        assert (world.log, models.memory.n_held) == (["open a4", "open a4", "close a4"], 4)
        assert await models.reload(entry) is False

    run(work)


def test_a_changed_file_that_does_not_fit_beside_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        world = World()
        models, file = changed_models(tmp_path, world, 6)
        entry, old = models.find("a6"), await models.service("a6")
        place = old.admission.enter(1)
        file.write_text("newer")
        with pytest.raises(ApiError) as refused:  # the old one works
            await models.reload(entry)
        assert (refused.value.status, entry.service, entry.state) == (503, old, "loaded")
        place.leave()
        assert await models.reload(entry) is True
        assert world.log == ["open a6", "close a6", "open a6"]

    run(work)


def test_a_changed_file_that_is_no_model_leaves_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        world = World()
        models, file = changed_models(tmp_path, world)
        entry, old = models.find("a4"), await models.service("a4")
        file.write_text("rubbish")
        world.errors["a4"] = ModelFormatError("not a model")
        with pytest.raises(ModelFormatError):
            await models.reload(entry)
        assert (entry.service, entry.state, models.lost) == (old, "loaded", [])
        assert models.memory.n_held == 4

    run(work)


def test_a_changed_file_that_can_never_fit_leaves_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        world = World()
        models, file = changed_models(tmp_path, world)
        entry, old = models.find("a4"), await models.service("a4")
        file.write_text("larger")
        needs(models, 11)
        with pytest.raises(ApiError) as refused:
            await models.reload(entry)
        assert (refused.value.status, entry.service, entry.state) == (400, old, "loaded")
        assert (world.log, models.memory.n_held) == (["open a4"], 4)

    run(work)


def test_a_changed_file_of_a_failed_engine_closes_the_engine(tmp_path: Path) -> None:
    async def work() -> None:
        world = World()
        models, file = changed_models(tmp_path, world)
        entry, old = models.find("a4"), await models.service("a4")
        old.host.fail(DeviceLostError("gone"))
        entry.state = "failed"  # as `watch` leaves it between two attempts
        file.write_text("newer")
        assert await models.reload(entry) is True
        await asyncio.sleep(0.1)
        assert (world.log, models.memory.n_held) == (["open a4", "open a4", "close a4"], 4)

    run(work)


def test_a_client_that_leaves_interrupts_no_close() -> None:
    async def work() -> None:
        world = World()
        models = world.models("a4")
        await models.service("a4")
        unloading = asyncio.ensure_future(models.unload(models.find("a4")))
        await asyncio.sleep(0)
        unloading.cancel()
        await asyncio.wait((unloading,))
        await asyncio.sleep(0.01)
        assert (world.log, models.memory.n_held) == (["open a4", "close a4"], 0)

    run(work)


def test_a_lost_device_is_replaced_by_the_next_request() -> None:
    async def work() -> None:
        world = World()
        models = world.models("a4")
        old = await models.service("a4")
        old.host.fail(DeviceLostError("gone"))
        assert models.lost == ["a4"]
        new = await models.service("a4")
        assert (new is not old, models.lost, world.log) == (True, [], ["open a4", "close a4", "open a4"])

    run(work)


def test_a_failed_engine_is_loaded_again_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(watching, "WATCH_S", 0.005)
        world = World()
        models = world.models("a4")
        entry, service = models.find("a4"), await models.service("a4")
        world.errors["a4"] = BackendError("no device")
        service.host.fail(BackendError("gone"))
        task = asyncio.ensure_future(watching.watch(models))
        await asyncio.sleep(0.2)  # each look moves the clock
        async with asyncio.timeout(20):
            while entry.state != "failed" or world.log.count("open a4") < 3:
                await asyncio.sleep(0.001)
        assert (entry.state, models.lost) == ("failed", ["a4"])
        n_tries = world.log.count("open a4") - 1
        assert 2 <= n_tries <= 8
        world.errors.clear()
        while models.lost:
            await asyncio.sleep(0.005)
        assert entry.state == "loaded"
        task.cancel()

    run(work)

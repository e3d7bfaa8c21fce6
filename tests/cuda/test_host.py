"""The backend's contract on the rig: what it frees, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.cuda.rig import live, open_rig
from tests.support.parity.case_tools import array, empty, weight

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.common.op_runner import OpCase, case_plan, run_case
from camelid.errors import BackendError, CamelidError, DeviceLostError, OutOfMemoryError
from camelid.plan.plan import Plan
from camelid_native.cuda import library
from camelid_native.cuda.backend import CudaBackend

CASE = OpCase(
    op="linear",
    views={"y": empty(2, 64), "x": array(1, 2, 64)},
    weights={"weight": weight("q8_0", 2, 64, 64)},
)
POOLS = {"other": PoolSize(2, 2, 1), "kv": PoolSize(2, 2, 1), "tokens": PoolSize(2)}


async def compiled() -> tuple[CudaBackend, Plan, Program]:
    """An open backend with the program of a product."""
    backend, (plan, _) = open_rig(), case_plan(CASE)
    await backend.open(OpenSpec())
    await backend.load(list(plan.weights().values()), {})
    await backend.allocate(plan.states, POOLS)
    return backend, plan, await backend.compile(plan)


def check(work: Coroutine[Any, Any, CudaBackend]) -> None:
    """Runs the work and closes its backend, after which nothing is left: `nothing_is_left`."""

    async def whole() -> None:
        await (await work).close()

    asyncio.run(whole())


def test_close_frees_everything() -> None:
    async def work() -> CudaBackend:
        backend = open_rig()
        await backend.open(OpenSpec())
        await run_case(backend, CASE)
        await run_case(backend, CASE)
        return backend

    check(work())


def test_a_second_open_closes_the_first() -> None:
    async def work() -> CudaBackend:
        backend, plan, program = await compiled()
        await backend.open(OpenSpec())
        with pytest.raises(BackendError, match="stale"):
            backend.run(program, bytes(4 * plan.layout.n_words))
        return backend

    check(work())


def test_a_failed_compilation_frees_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> CudaBackend:
        backend, plan, _ = await compiled()
        before = live()

        def fail(*_: object) -> None:
            raise BackendError("no code")

        monkeypatch.setattr(library.Library, "kernel", fail)
        with pytest.raises(BackendError, match="no code"):
            await backend.compile(plan)
        assert live() == before
        return backend

    check(work())


def test_memory_that_is_too_small_is_told_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> CudaBackend:
        backend, plan, _ = await compiled()
        monkeypatch.setenv("EMU_MEMORY", str(1 << 20))
        with pytest.raises(OutOfMemoryError, match="-ngl"):
            await backend.allocate(plan.states, {**POOLS, "kv": PoolSize(1 << 20, 2, 1)})
        monkeypatch.delenv("EMU_MEMORY")
        with pytest.raises(BackendError, match="allocate"):
            await backend.compile(plan)
        await backend.allocate(plan.states, POOLS)
        await backend.compile(plan)
        return backend

    check(work())


def test_a_lost_device_ends_steps_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        backend, plan, program = await compiled()
        monkeypatch.setenv("EMU_LOST", "1")
        for _ in range(4):  # more than there are slots: none stays occupied
            ticket = backend.run(program, bytes(4 * plan.layout.n_words))
            with pytest.raises(DeviceLostError, match="restart"):
                await backend.read(ticket)
        await backend.close()
        monkeypatch.delenv("EMU_LOST")
        await backend.open(OpenSpec())
        await run_case(backend, CASE)
        await backend.close()

    asyncio.run(work())


def test_a_recovered_device_has_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        backend, plan, program = await compiled()
        step = bytes(4 * plan.layout.n_words)
        before, lost = backend.memory(), backend.run(program, step)
        monkeypatch.setenv("EMU_LOST", "1")
        with pytest.raises(DeviceLostError, match="restart"):  # not back yet
            await backend.recover()
        with pytest.raises(DeviceLostError, match="could not be opened again"):
            backend.run(program, step)
        monkeypatch.delenv("EMU_LOST")
        assert await backend.recover()
        with pytest.raises(DeviceLostError, match="lost with its device"):
            await backend.read(lost)
        await backend.read(backend.run(program, step))
        assert (backend.memory().weight_bytes, backend.memory().arena_bytes) == (
            before.weight_bytes,
            before.arena_bytes,
        )
        await backend.close()

    asyncio.run(work())


@pytest.mark.parametrize("change", ["load", "allocate"])
def test_a_program_is_stale_after_a_change_of_its_memory(change: str) -> None:
    async def work() -> CudaBackend:
        backend, plan, program = await compiled()
        if change == "load":
            await backend.load(list(plan.weights().values()), {})
        else:
            await backend.allocate(plan.states, POOLS)
        with pytest.raises(BackendError, match="stale"):
            backend.run(program, bytes(4 * plan.layout.n_words))
        return backend

    check(work())


def test_wrong_calls_have_errors() -> None:
    async def work() -> CudaBackend:
        backend, plan, program = await compiled()
        size = 4 * plan.layout.n_words
        for n_bytes in (size - 4, size + 4):
            with pytest.raises(BackendError, match="expected"):
                backend.run(program, bytes(n_bytes))
        tickets = [backend.run(program, bytes(size)) for _ in range(3)]
        with pytest.raises(BackendError, match="in flight"):
            backend.run(program, bytes(size))
        for ticket in tickets:
            assert await backend.read(ticket) == await backend.read(ticket)
        with pytest.raises(CamelidError, match="unit"):
            await backend.read_state("kv", 7)
        return backend

    check(work())
    with pytest.raises(BackendError, match="not open"):
        asyncio.run(open_rig().compile(case_plan(CASE)[0]))


def test_weight_bytes_are_those_on_the_device() -> None:
    async def work() -> CudaBackend:
        backend, plan, _ = await compiled()
        size = backend.memory().weight_bytes
        await backend.load(list(plan.weights().values()), {})
        assert backend.memory().weight_bytes == size == backend.forecast({"": plan}, POOLS).weights
        return backend

    check(work())


def test_another_thread_uses_the_same_device() -> None:
    backend = open_rig()
    asyncio.run(backend.open(OpenSpec()))
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, run_case(backend, CASE)).result()
    assert result.views["y"].any()
    asyncio.run(backend.close())


def test_other_tasks_run_until_a_step_is_over() -> None:
    """The stand-in's step is over at the second question."""

    async def work() -> CudaBackend:
        backend, plan, program = await compiled()
        turns: list[int] = []

        async def other() -> None:
            while True:
                turns.append(0)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await backend.read(backend.run(program, bytes(4 * plan.layout.n_words)))
        task.cancel()
        assert len(turns) == 2
        return backend

    check(work())


def test_a_backend_that_closes_during_a_read_ends_it() -> None:
    async def work() -> None:
        backend, plan, program = await compiled()
        reading = asyncio.create_task(backend.read(backend.run(program, bytes(4 * plan.layout.n_words))))
        for _ in range(2):  # the read has asked once
            await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(BackendError, match="not open"):
            await reading

    asyncio.run(work())

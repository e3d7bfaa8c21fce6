"""The CPU backend: order of calls, refusals, and shutdown."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.native.cpu_children import KV, POOLS, doubling, opened, prepared

from camelid import load
from camelid.backends.base import OpenSpec
from camelid.engine import pace
from camelid.errors import BackendError
from camelid_native.cpu import backend as cpu
from camelid_native.cpu import runner as cpu_runner
from camelid_native.cpu.api import Library
from camelid_native.cpu.backend import CpuBackend, open_backend
from camelid_native.cpu.memory import CHUNK, LINE, Arena
from camelid_native.cpu.records import MOST_RUNS

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / folder) for folder in ("core", "native", "."))
UNIT = bytes(KV.unit_bytes)

# Calls in a separate process -> its output lines before the end.
ENDS: dict[str, list[str]] = {
    "drop_during_a_step": [],
    "exit_during_a_step": [],
    "open_again_during_a_step": ["6.0"],
    "run_before_open": ["cpu backend 'cpu' is not open"],
    "run_after_close": ["cpu backend 'cpu' is not open"],
    "run_after_allocate": ["cpu program 'op-linear' was compiled before", "6.0"],
    "run_a_short_step": ["cpu a step of program 'op-linear' has"],
}


def said(child: str) -> list[str]:
    """The output of a child process that exits normally, without its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.native.cpu_children", child],
        env={**os.environ, "PYTHONPATH": PATHS},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    *lines, last = done.stdout.splitlines()
    assert last == "end"
    return lines


@pytest.mark.parametrize("child", ENDS)
def test_no_order_of_calls_crashes(child: str) -> None:
    lines = said(child)
    assert len(lines) == len(ENDS[child])
    assert all(line.startswith(want) for line, want in zip(lines, ENDS[child], strict=True)), lines


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not on this platform: there is no fork")
def test_fork_shares_nothing() -> None:
    assert said("fork") == ["2.0", "10", "6.0 True", "True True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not on this platform: there is no fork")
def test_fork_during_a_step() -> None:
    told, *answers = said("fork_during_a_step")
    assert told.startswith("cpu the step was under way when this process was forked")
    assert answers == ["10 6.0"]


class Recorder:
    """Counts the calls of the library."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.interrupt = False  # raise from the next submit, after it has submitted
        for name in ("start", "submit", "wait", "stop"):
            monkeypatch.setattr(Library, name, self._recorded(name, getattr(Library, name)))

    def _recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append(f"wait {arguments[2]}" if name == "wait" else name)
            found = function(*arguments)
            if name == "submit" and self.interrupt:
                raise KeyboardInterrupt
            return found

        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def test_interrupted_submit_loses_no_step(recorder: Recorder) -> None:
    async def run() -> None:
        backend, made = await opened(), doubling()
        program = await prepared(backend, made)
        recorder.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            backend.run(program, made.step)
        recorder.interrupt = False
        await backend.read(backend.run(program, made.step))
        await backend.close()

    asyncio.run(run())
    assert recorder.calls == ["start", "submit", "submit", "wait 0", "stop"]


def test_steps_queue_behind_a_running_step(recorder: Recorder) -> None:
    """The host waits only if all slots are used, and then for one step."""

    async def run() -> None:
        backend, made = await opened(), doubling()
        first = await prepared(backend, made)
        programs = [first, await backend.compile(first.plan)]  # with separate result slots
        tickets = [backend.run(programs[i % 2], made.step) for i in range(MOST_RUNS + 1)]
        for ticket in (tickets[1], tickets[0], tickets[2]):
            recorder.calls.append("read")
            await backend.read(ticket)
        await backend.close()

    asyncio.run(run())
    last = MOST_RUNS - 1
    begun = ["start", *["submit"] * MOST_RUNS, f"wait {last}", "submit"]
    read = ["read", f"wait {last}", "read", "read", f"wait {last - 1}"]
    assert recorder.calls == [*begun, *read, "wait 0", "stop"]


def test_an_interrupted_submit_waits_for_all_steps(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of running steps is then unknown, and the host waits for all."""

    async def run() -> None:
        backend, made = await opened(), doubling()
        program = await prepared(backend, made)
        first = backend.run(program, made.step)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Library, "submit", interrupted)
            backend.run(program, made.step)
        await backend.read(first)
        await backend.close()

    asyncio.run(run())
    assert recorder.calls == ["start", "submit", "wait 0", "wait 0", "stop"]


def interrupted(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_before_a_submit_loses_no_later_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt occurs during the query of the process, which `settle` makes first."""

    async def run() -> None:
        backend, made = await opened(), doubling()
        program = await prepared(backend, made)
        backend.run(program, made.step)
        answers = iter([os.getpid()])
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(
                cpu_runner, "os", SimpleNamespace(getpid=lambda: next(answers, None) or interrupted())
            )
            backend.run(program, made.step)
        await backend.read(backend.run(program, made.step))
        await backend.close()

    asyncio.run(run())


@pytest.mark.parametrize("n_places", [1, 2, 3, MOST_RUNS])
def test_queued_steps_keep_their_own_results(
    n_places: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few result slots and with one: the tokens equal those of one step at a time."""
    monkeypatch.setattr(cpu, "result_places", lambda n_bytes: n_places)
    monkeypatch.setattr(pace, "RUN_AHEAD_S", 1e9)
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, type="f32")
    answers: list[list[int]] = []
    for depth in (1, MOST_RUNS):
        with load(tmp_path / "tiny.gguf", backend="cpu", max_in_flight=depth) as llm:
            found = llm.generate([1, 2, 3], max_tokens=60, temperature=2.0, seed=1, ignore_eos=True)
            assert llm.counters.max_in_flight == depth
            answers.append(found.token_ids)
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 10, "equal tokens cannot show a stale result"


def test_inputs_wait_for_the_running_step(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write would overwrite data that the step still reads."""

    async def run() -> None:
        backend, made = await opened(), doubling()
        program = await prepared(backend, made)
        write = type(program.handle.arena).write

        def recorded(*arguments: Any) -> None:
            recorder.calls.append("write")
            write(*arguments)

        monkeypatch.setattr(type(program.handle.arena), "write", recorded)
        backend.run(program, made.step)
        assert await made.y_of(backend, program, 3.0) == 6.0
        await backend.close()

    asyncio.run(run())
    assert recorder.calls == ["start", "submit", "wait 0", "write", "submit", "wait 0", "stop"]


def test_allocate_waits_for_the_running_step(recorder: Recorder) -> None:
    async def run() -> None:
        backend, made = await opened(), doubling()
        backend.run(await prepared(backend, made), made.step)
        await backend.allocate(made.plan.states, POOLS)
        recorder.calls.append("allocated")
        await backend.close()

    asyncio.run(run())
    assert recorder.calls == ["start", "submit", "wait 0", "allocated", "stop"]


def test_threads_end_with_the_backend(recorder: Recorder) -> None:
    async def run() -> None:
        backend, made = await opened(), doubling()
        backend.run(await prepared(backend, made), made.step)

    asyncio.run(run())
    assert recorder.calls == ["start", "submit", "wait 0", "stop"]


def test_second_open_ends_the_first(recorder: Recorder) -> None:
    async def run() -> None:
        backend = await opened()
        await backend.open(OpenSpec(threads=1))
        await backend.close()
        await backend.close()

    asyncio.run(run())
    assert recorder.calls == ["start", "stop", "start", "stop"]


def test_library_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    init = Library.__init__
    monkeypatch.setattr(Library, "__init__", lambda own, name="": (loaded.append(name), init(own, name))[1])
    asyncio.run(close_after(lambda backend: backend.open(OpenSpec(threads=1))))
    assert loaded == [""]
    assert open_backend().capabilities().name == "cpu"  # without open, too


async def close_after(call: Callable[[CpuBackend], Awaitable[object]]) -> None:
    backend = open_backend()
    try:
        await call(backend)
    finally:
        await backend.close()


# A call on an opened backend -> its error.
REFUSED: dict[str, tuple[Callable[[CpuBackend], Awaitable[object]], str]] = {
    "read of no group": (lambda b: b.read_state("other", 1), "'other' was not allocated; allocated: kv"),
    "write to no group": (lambda b: b.write_state("other", 1, UNIT), "'other' was not allocated"),
    "read past the last": (lambda b: b.read_state("kv", 3), "no unit 3; its units are 0 to 2"),
    "read before the first": (lambda b: b.read_state("kv", -1), "no unit -1"),
    "write past the last": (lambda b: b.write_state("kv", 3, UNIT), "no unit 3"),
    "write before the first": (lambda b: b.write_state("kv", -1, UNIT), "no unit -1"),
    "write of half a unit": (lambda b: b.write_state("kv", 1, UNIT[1:]), "a unit of state"),
    "allocate without a pool": (lambda b: b.allocate([KV], {}), "'kv' was not allocated; allocated: none"),
    "adapter": (lambda b: b.open(OpenSpec(adapter="z80")), "no variant 'z80'"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refuses_invalid_calls(call: str) -> None:
    refused, message = REFUSED[call]

    async def run(backend: CpuBackend) -> None:
        await backend.open(OpenSpec(threads=1))
        await backend.allocate([KV], POOLS)
        with pytest.raises(BackendError, match=message):
            await refused(backend)

    asyncio.run(close_after(run))


# Calls that need an open backend.
UNOPENED: dict[str, Callable[[CpuBackend], Awaitable[object]]] = {
    "load": lambda backend: backend.load([], {}),
    "allocate": lambda backend: backend.allocate([KV], POOLS),
    "compile": lambda backend: backend.compile(doubling().plan),
}


@pytest.mark.parametrize("call", UNOPENED)
def test_refuses_unless_open(call: str) -> None:
    with pytest.raises(BackendError, match="is not open"):
        asyncio.run(close_after(UNOPENED[call]))


def test_units_do_not_overlap() -> None:
    async def run(backend: CpuBackend) -> list[bytes]:
        await backend.open(OpenSpec(threads=1))
        await backend.allocate([KV], POOLS)
        units = [bytes([number]) * len(UNIT) for number in (1, 2, 3)]
        for number, data in enumerate(units):
            await backend.write_state("kv", number, data)
        assert [await backend.read_state("kv", number) for number in range(3)] == units
        return units

    asyncio.run(close_after(run))


def test_large_blocks_waste_no_chunk() -> None:
    """A block between small ones uses its own size, and the small ones stay adjacent."""
    arena = Arena()
    first = arena.block(1)
    large = arena.block(CHUNK)
    assert arena.block(1) == first + LINE
    assert large % LINE == 0 and arena.n_bytes == CHUNK + 2 * LINE

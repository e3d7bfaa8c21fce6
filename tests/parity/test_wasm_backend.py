"""The page's cpu backend and its executor: the order of calls, refusals, and faults."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import struct
import subprocess
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.native.test_cpu_backend import REFUSED, UNIT, UNOPENED
from tests.support.native.cpu_children import KV, LONG, POOLS, Doubling, doubling
from tests.support.node_host import HOST, NodeHost, need_node, wasm_host

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.errors import BackendError, OutOfMemoryError
from camelid.plan.plan import Stage
from camelid_native.cpu.records import OpRecord
from camelid_native.wasm.backend import WasmBackend
from camelid_native.wasm.tape import Json

pytestmark = pytest.mark.parity

THREADS = (1, 2)
UNITS = ("blocks", "reuse", "limit", "order", "failures", "stop", "choice")


@pytest.mark.parametrize("name", UNITS)
def test_part_of_the_executor(name: str) -> None:
    command = [need_node(), "--no-warnings", str(HOST.with_name("units.mjs")), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def host() -> NodeHost:
    return wasm_host()


def run(host: NodeHost, work: Callable[[WasmBackend], Coroutine[Any, Any, None]], threads: int = 1) -> None:
    """Runs `work` on an opened backend. Plain SIMD compiles faster."""

    async def opened() -> None:
        backend = WasmBackend(host)
        await backend.open(OpenSpec(adapter="wasm", threads=threads))
        try:
            await work(backend)
        finally:
            await backend.close()

    asyncio.run(opened())


async def prepared(backend: WasmBackend, made: Doubling) -> Program:
    await backend.load(list(made.plan.weights().values()), {})
    await backend.allocate(made.plan.states, POOLS)
    return await backend.compile(made.plan)


async def y_of(backend: WasmBackend, made: Doubling, program: Program, value: float) -> float:
    return await made.y_of(backend, program, value)  # pyright: ignore[reportArgumentType] - it has run_buffers


@pytest.mark.parametrize("call", REFUSED)
def test_refuses_invalid_calls(call: str, host: NodeHost) -> None:
    """The errors of the native backend."""
    refused: tuple[Callable[[Any], Awaitable[object]], str] = REFUSED[call]

    async def work(backend: WasmBackend) -> None:
        await backend.allocate([KV], POOLS)
        with pytest.raises(BackendError, match=refused[1]):
            await refused[0](backend)

    run(host, work)


@pytest.mark.parametrize("call", UNOPENED)
def test_refuses_unless_open(call: str, host: NodeHost) -> None:
    work: Callable[[Any], Awaitable[object]] = UNOPENED[call]

    async def closed() -> None:
        await work(WasmBackend(host))

    with pytest.raises(BackendError, match="is not open"):
        asyncio.run(closed())


def test_units_do_not_overlap(host: NodeHost) -> None:
    async def work(backend: WasmBackend) -> None:
        await backend.allocate([KV], POOLS)
        units = [bytes([number]) * len(UNIT) for number in (1, 2, 3)]
        for number, data in enumerate(units):
            await backend.write_state("kv", number, data)
        assert [await backend.read_state("kv", number) for number in range(3)] == units

    run(host, work)


@pytest.mark.parametrize("threads", THREADS)
def test_steps_take_effect_in_their_order(threads: int, host: NodeHost) -> None:
    """Inputs wait for the previous step; a third step waits for no step and is refused; slots are reused."""

    async def work(backend: WasmBackend) -> None:
        made = doubling()
        program = await prepared(backend, made)
        assert await y_of(backend, made, program, 3.0) == 6.0
        with pytest.raises(BackendError, match="read a step before the next"):
            [backend.run(program, made.step) for _ in range(3)]
        with pytest.raises(BackendError, match="a step of 8 bytes, expected"):
            backend.run(program, bytes(8))
        await backend.allocate(made.plan.states, POOLS)
        with pytest.raises(BackendError, match="compiled before the last"):
            backend.run(program, made.step)
        program = await backend.compile(made.plan)
        for _ in range(5):
            ticket = backend.run(program, made.step)
            assert await backend.read(ticket) == await backend.read(ticket) == []
            other = backend.run(program, made.step)
            await backend.read(other)
        assert backend._host.memory()["weight/weight/panels"] == 4 * 512 * 512  # type: ignore[attr-defined]

    run(host, work, threads)


def test_threads_without_atomics_wait_async() -> None:
    async def work(backend: WasmBackend) -> None:
        made = doubling()
        program = await prepared(backend, made)
        assert [await y_of(backend, made, program, float(x)) for x in range(5)] == [0, 2, 4, 6, 8]

    run(NodeHost("wasm", "--blocking"), work, threads=2)


@pytest.mark.parametrize("threads", THREADS)
def test_steps_use_the_inputs_of_their_submission(threads: int, host: NodeHost) -> None:
    """Later writes do not affect waiting or running steps, and these steps do not write to reused memory."""

    async def work(backend: WasmBackend) -> None:
        made = doubling(LONG)
        program = await prepared(backend, made)
        assert await y_of(backend, made, program, 1.0) == 2.0
        arena, offsets, n_bytes = program.handle.arena, program.handle.offsets, 4 * 512 * 64
        for value in (3.0, 5.0):
            host.write(arena, offsets[made.x.buffer.name], struct.pack("<f", value) * (n_bytes // 4))
            if value == 3.0:
                backend.run(program, made.step)
        y = await host.read_state(arena, offsets[made.y.buffer.name], n_bytes)
        assert set(memoryview(y).cast("f")) == {6.0}
        backend.run(program, made.step)
        await backend.allocate([KV], {"kv": PoolSize(64, 1, 2)})
        assert not any([any(await backend.read_state("kv", unit)) for unit in range(64)])

    run(host, work, threads)


@pytest.mark.parametrize("threads", THREADS)
def test_growing_memory_moves_nothing(threads: int, host: NodeHost) -> None:
    """An earlier compiled program keeps its addresses, and so do readers of its results. Shared memory grows
    in another way than unshared memory.
    """

    async def work(backend: WasmBackend) -> None:
        made, large = doubling(), doubling(width=2048, rows=16)
        program = await prepared(backend, made)
        before = backend.memory()
        assert await backend.compile(made.plan) is not program
        assert backend.memory().weight_bytes == before.weight_bytes, "a weight was copied"
        await backend.load(list(large.plan.weights().values()), {})
        other = await backend.compile(large.plan)
        for each, plan, value in ((program, made, 3.0), (other, large, 5.0), (program, made, 7.0)):
            assert await y_of(backend, plan, each, value) == 2 * value
        await backend.allocate(made.plan.states, POOLS)
        assert backend.memory().weight_bytes == before.weight_bytes + 4 * 2048 * 2048
        assert backend.memory().arena_bytes == 0

    run(host, work, threads)


def test_out_of_memory_is_one_error(host: NodeHost) -> None:
    async def work(backend: WasmBackend) -> None:
        made = doubling()
        with pytest.raises(OutOfMemoryError, match=r"WebAssembly has at most 4 GiB.*use a smaller") as told:
            await backend.allocate([KV], {"kv": PoolSize(3_000_000)})
        assert "\n" not in str(told.value)
        assert await y_of(backend, made, await prepared(backend, made), 2.0) == 4.0

    for threads in THREADS:
        run(host, work, threads)


class Spoiling(NodeHost):
    """Changes the first op's record of every program."""

    def __init__(self, change: Callable[[OpRecord], None], *more: str) -> None:
        super().__init__("wasm", *more)
        self._change = change

    async def compile(self, section: Json) -> int:
        buffer = next(buffer for buffer in section["buffers"] if buffer["name"].startswith("records/"))
        data = bytearray(base64.b64decode(buffer["data"]))
        self._change(OpRecord.from_buffer(data))
        buffer["data"] = base64.b64encode(data).decode()
        return await super().compile(section)


def past_the_end(record: OpRecord) -> None:
    record.views[0].at = 0xFFFFF000


def no_such_kind(record: OpRecord) -> None:
    record.kind = 1 << 20


@pytest.mark.faults
@pytest.mark.parametrize(("threads", "more"), [(1, ()), (2, ()), (2, ("--blocking",))])
def test_a_trap_closes_the_backend_with_an_error(threads: int, more: tuple[str, ...]) -> None:
    """The kernels run again after reopening."""
    spoiled = Spoiling(past_the_end, *more)

    async def work(backend: WasmBackend) -> None:
        made = doubling()
        program = await prepared(backend, made)
        by_a_worker = "RuntimeError: " if threads > 1 else ""
        words = f"the kernels failed: {by_a_worker}memory access out of bounds; load the model again"
        first = backend.run(program, made.step)
        with pytest.raises(BackendError, match=words):  # the second step no longer runs, or is refused
            await backend.read(backend.run(program, made.step))
        with pytest.raises(BackendError, match=words):
            await backend.read(first)
        for call in (lambda: backend.read_state("kv", 1), lambda: prepared(backend, made)):
            with pytest.raises(BackendError, match="the kernels failed"):
                await call()
        with pytest.raises(BackendError, match="the kernels failed"):
            backend.run(program, made.step)
        spoiled._change = lambda record: None
        await backend.open(OpenSpec(adapter="wasm", threads=threads))
        assert await y_of(backend, made, await prepared(backend, made), 2.0) == 4.0

    run(spoiled, work, threads)


@pytest.mark.faults
def test_a_trap_during_compilation_is_an_error() -> None:
    async def work(backend: WasmBackend) -> None:
        with pytest.raises(BackendError, match="the kernels failed"):
            await prepared(backend, doubling())

    run(Spoiling(no_such_kind), work)


def test_a_step_read_again_counts_once(host: NodeHost) -> None:
    async def work(backend: WasmBackend) -> None:
        made = doubling()
        ticket = backend.run(await prepared(backend, made), made.step)
        assert await backend.read(ticket) == await backend.read(ticket)
        assert backend.memory().counters["in_flight"] == 0

    run(host, work)


def test_stages_pass_their_boundary_buffers(host: NodeHost) -> None:
    """y = 2 x in one, its y the input of another."""

    async def work(backend: WasmBackend) -> None:
        made = doubling()
        first = _staged(made, outputs=("y",))
        await prepared(backend, first)
        program = await backend.compile(first.plan)
        x = np.full((64, 512), 3.0, np.float32).tobytes()
        ticket, _ = await backend.run_buffers(program, first.step, {first.x: x}, [])
        y = (await backend.read_boundary(ticket))["y"]
        assert set(np.frombuffer(y, np.float32)) == {6.0}
        taking = _staged(made, inputs=("x",))
        taken = backend.run(await backend.compile(taking.plan), made.step, {"x": y})
        assert await backend.read(taken) == []
        with pytest.raises(BackendError, match="expects boundary buffers"):
            backend.run(taken.program, made.step)

    run(host, work)


def _staged(made: Doubling, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Doubling:
    buffers = {"x": made.x.buffer, "y": made.y.buffer}
    given = {"inputs": tuple(buffers[n] for n in inputs), "outputs": tuple(buffers[n] for n in outputs)}
    return replace(made, plan=replace(made.plan, stages=(Stage("main", tuple(made.plan.ops), **given),)))


def test_sections_are_plain_data_and_complete(host: NodeHost) -> None:
    """Hosts receive JSON. Every address of a record is listed: of 8 views, of 3 weights, and for 2 states two
    tensors and a table.
    """
    seen: list[Json] = []

    class Seeing(NodeHost):
        async def compile(self, section: Json) -> int:
            seen.append(section)
            return await super().compile(section)

    async def work(backend: WasmBackend) -> None:
        await prepared(backend, doubling())

    run(Seeing("wasm"), work)
    (section,) = seen
    assert json.loads(json.dumps(section)) == section
    fields = {buffer["name"].split("/")[0]: buffer.get("addresses") for buffer in section["buffers"]}
    assert fields["arena"] is None and fields["program"] == {"each": 80, "fields": [0, 16]}
    records = fields["records"]
    assert records["each"] == ctypes.sizeof(OpRecord) and len(records["fields"]) == 8 + 3 + 2 * (2 + 1)


def test_counters_move(host: NodeHost) -> None:
    before = host.counters()

    async def work(backend: WasmBackend) -> None:
        made = doubling()
        program = await prepared(backend, made)
        await backend.read(backend.run(program, made.step))
        assert backend.memory().counters["runs"] == 1

    run(host, work)
    after = host.counters()
    assert after["runs"] == before["runs"] + 1 and after["inFlight"] == before["inFlight"]
    assert after["bytesLoaded"] - before["bytesLoaded"] == 4 * 512 * 512
    assert set(host.memory()) == set(), "the backend is not closed"

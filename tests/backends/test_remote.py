"""A backend of another process: the bits of one process, and as many steps under way as stages."""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest

zmq = pytest.importorskip("zmq", reason="needs pyzmq: pip install 'camelid[ray]'")

from tests.backends.test_staged import Kept, one_step, started, started_alone  # noqa: E402
from tests.model.test_stages import every_cut, shape_logits  # noqa: E402
from tests.model.test_stages import plan_of as make_plan  # noqa: E402
from tests.support.model.stress.shapes import SHAPES  # noqa: E402
from tests.support.random_adapters import random_adapter  # noqa: E402
from tests.support.stage_answers import answers  # noqa: E402
from tests.support.stages import TOKEN, named, stage, stages  # noqa: E402

from camelid.backends.base import Backend, Candidates, OpenSpec, OutputRow  # noqa: E402
from camelid.backends.reference.backend import ReferenceBackend  # noqa: E402
from camelid.backends.remote.backend import RemoteBackend  # noqa: E402
from camelid.backends.remote.rows import pack_rows, unpack_rows  # noqa: E402
from camelid.backends.remote.tables import plan_of, table_of, value_of  # noqa: E402
from camelid.backends.staged.backend import StagedBackend  # noqa: E402
from camelid.errors import (  # noqa: E402
    BackendError,
    DeviceLostError,
    OutOfMemoryError,
    RequestError,
)
from camelid.loading.options import LoadOptions  # noqa: E402
from camelid.loading.start import start  # noqa: E402

MODEL = SHAPES["gpt_oss"].model()
N = len(MODEL.spec.layers)
REFERENCE = named("reference")


@pytest.mark.parametrize("name", ["gpt_oss", "gemma3n", "qwen3next", "mamba2"])
def test_logits_equal_one_process(name: str) -> None:
    """Windows and experts; buffers that pass through a stage; recurrent state."""
    shape = SHAPES[name]
    model, ids = shape.model(), shape.token_ids
    want = asyncio.run(shape_logits(ReferenceBackend(), model, ids, 7))
    cuts = every_cut(model.spec)[-1]
    with stages([REFERENCE] * (len(cuts) + 1)) as parts:
        backend = StagedBackend(parts, cuts, len(model.spec.layers))
        asyncio.run(backend.open(OpenSpec()))  # the capabilities are the stages'
        assert np.array_equal(asyncio.run(shape_logits(backend, model, ids, 7)), want)
        asyncio.run(backend.close())


@contextmanager
def two_stages(first: Any = REFERENCE, last: Any = REFERENCE) -> Iterator[StagedBackend]:
    with stages([first, last]) as parts:
        yield StagedBackend(parts, (1,), N)


async def opened(backend: Backend) -> Any:
    await backend.open(OpenSpec())
    return await started(backend)  # type: ignore[arg-type]


def test_both_stages_work_at_once() -> None:
    """Each on another step; results return in the order of the steps, whoever reads first."""
    with two_stages() as backend:

        async def run() -> None:
            this = await opened(backend)
            can = backend.capabilities()
            assert (can.n_stages, can.max_in_flight, can.promise) == (2, 2, "A+B")
            program, step = one_step(this)
            alone = await backend.read(backend.run(program, step))
            tickets = [backend.run(program, step) for _ in range(2)]
            with pytest.raises(BackendError, match="2 steps at a time; read it before the next"):
                backend.run(program, step)
            second, first = [await backend.read(ticket) for ticket in reversed(tickets)]
            assert [row.logit for row in first] == [row.logit for row in second] == [r.logit for r in alone]
            assert backend.memory().counters["stages_at_once"] == 2
            await backend.close()

        asyncio.run(run())


def test_three_stages_run_three_steps_at_once() -> None:
    """The first step meets the second and the third, each in another stage."""
    barrier = Barrier(3)

    class Meeting(ReferenceBackend):
        n_left = 0  # steps before the one that meets the others

        def run(self, program: Any, step: bytes, inputs: Any = None) -> Any:
            if self.n_left == 0:
                barrier.wait(10)
            self.n_left -= 1
            return super().run(program, step, inputs)

    def meeting(n: int) -> Any:
        return type("Meeting", (Meeting,), {"n_left": n})

    with stages([meeting(2), meeting(1), meeting(0)]) as parts:
        backend = StagedBackend(parts, (1, 2), N)

        async def run() -> None:
            program, step = one_step(await opened(backend))
            results = [await backend.read(t) for t in [backend.run(program, step) for _ in range(3)]]
            assert len({tuple(row.logit for row in rows) for rows in results}) == 1
            await backend.close()

        asyncio.run(run())


def test_steps_enter_each_stage_in_order() -> None:
    """Also where nobody has taken the first step's reply yet."""
    seen: list[bytes] = []

    class Seen(ReferenceBackend):
        def run(self, program: Any, step: bytes, inputs: Any = None) -> Any:
            seen.append(step)
            return super().run(program, step, inputs)

    with two_stages(last=Seen) as backend:

        async def run() -> None:
            this = await opened(backend)
            program, step = one_step(this)
            first = backend.run(program, step)
            await first.handle.turn.acquire()  # nobody advances the first step
            later = bytearray(step)
            struct.pack_into("<I", later, 4 * program.plan.layout.header_word("ordinal"), 7)
            second = backend.run(program, bytes(later))
            reader = asyncio.ensure_future(backend.read(second))
            await asyncio.sleep(0.1)
            assert not seen, "a step overtook the one before it"
            first.handle.turn.release()
            await reader
            await backend.read(first)
            assert seen == [step, bytes(later)]
            await backend.close()

        asyncio.run(run())


def test_an_error_of_a_stage_keeps_its_class_and_facts() -> None:
    def full() -> Backend:
        return Kept(load=OutOfMemoryError("too large", want_bytes=7))

    with two_stages(last=full) as backend:
        with pytest.raises(OutOfMemoryError, match=r"stage 2 of 2, .* on reference: too large") as caught:
            asyncio.run(opened(backend))
        assert caught.value.facts == {"want_bytes": 7}
        asyncio.run(backend.close())


def test_state_travels_whole() -> None:
    with stage(REFERENCE) as server:
        backend = RemoteBackend(server.address, TOKEN)

        async def run() -> None:
            await backend.open(OpenSpec())
            this = await started_alone(backend)
            program, step = one_step(this)
            await backend.read(backend.run(program, step))
            data = await backend.read_state("kv", 1)
            assert any(data)
            await backend.write_state("kv", 1, data[::-1])
            assert await backend.read_state("kv", 1) == data[::-1]
            with pytest.raises(BackendError, match="has 3 bytes, expected"):
                await backend.write_state("kv", 1, b"abc")
            assert backend.memory().counters["runs"] == 1
            await backend.close()

        asyncio.run(run())


def test_plans_and_capabilities_survive_the_wire() -> None:
    for shape in SHAPES.values():
        plan = make_plan(shape.model())
        weights = plan.weights()
        assert plan_of(table_of(plan, by_name=True), weights) == plan
        assert value_of(table_of(weights)) == weights
    can = ReferenceBackend().capabilities()
    assert replace(value_of(table_of(can)), refuses=can.refuses) == can


def test_results_keep_every_bit() -> None:
    floats, ids = array("f", [0.1, -3.5, float("-inf"), 1e-42]), array("I", [3, 1, 2, 2**32 - 1])
    found = Candidates(ids=memoryview(ids), logits=memoryview(floats), mean=0.1, variance=1e-300)
    plain = OutputRow(5, "ok", 0.1, -1 / 3)
    for row in (
        plain,
        plain._replace(candidates=found),
        plain._replace(logits=memoryview(floats), status="nan"),
    ):
        assert unpack_rows(pack_rows([row] * 3)) == [row] * 3
    assert unpack_rows(pack_rows([])) == []


@pytest.mark.parametrize("spoil", [0, 1, 2, 3])
def test_a_result_of_wrong_size_is_refused(spoil: int) -> None:
    floats: Any = memoryview(array("f", [1.0] * 4))
    found = Candidates(ids=memoryview(array("I", [1] * 4)), logits=floats, mean=0.0, variance=0.0)
    frames = pack_rows([OutputRow(5, "ok", 0.0, 0.0, floats, found)] * 2)
    frames[spoil] = frames[spoil][:-3]
    with pytest.raises(BackendError, match="damaged"):
        unpack_rows(frames)


@pytest.mark.parametrize("applied", [0.0, 1.0])
def test_a_whole_model_in_stages_equals_one_process(applied: float) -> None:
    """cria on cpu, without and with an adapter: tokens and log-probabilities of twelve requests together, and
    both stages work at once.
    """
    options = LoadOptions(backend="cpu", threads=1, parallel=6)

    async def staged() -> Any:
        async def find() -> list[RemoteBackend]:
            return list(parts)

        running = await start("cria", options, stages=find)
        try:
            await running.add_adapter(random_adapter(running, 3), applied=applied)
            found = await answers(running)
            assert running.engine.counters.max_in_flight == 2
            assert running.backend.memory().counters["stages_at_once"] == 2
            return found, running.note
        finally:
            await running.close()

    async def whole() -> Any:
        running = await start("cria", options)
        try:
            await running.add_adapter(random_adapter(running, 3), applied=applied)
            return await answers(running)
        finally:
            await running.close()

    with stages([named("cpu")] * 2) as parts:
        found, note = asyncio.run(staged())
    assert found == asyncio.run(whole())
    assert "2 of 4 layers and the head on cpu" in note


def test_stages_are_for_models_with_as_many_layers() -> None:
    async def run(n: int, **more: Any) -> None:
        async def find() -> list[RemoteBackend]:
            return [RemoteBackend("tcp://127.0.0.1:9", TOKEN)] * n

        with suppress(DeviceLostError):
            await start("cria", LoadOptions(backend="cpu", **more), stages=find)

    with pytest.raises(RequestError, match=r"stages is 5, but .* has 3 places to cut; expected 1 to 4"):
        asyncio.run(run(5))
    with pytest.raises(RequestError, match="gpu_layers is 1, but the model is cut into 2 stages"):
        asyncio.run(run(2, gpu_layers=1))

"""Several devices as one backend: their weights, transfers, errors and cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.model import runs
from tests.support.model.stress.shapes import SHAPES

from camelid.backends.base import Backend, Capabilities, OpenSpec, Program, Result, Sources, Ticket
from camelid.backends.null.backend import NullBackend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.staged.backend import StagedBackend
from camelid.engine.programs import Limits
from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid.loading.choose import open_layers
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.plan.plan import Plan
from camelid.plan.step import encode_step
from camelid.plan.weights import Weight

MODEL = SHAPES["gpt_oss"].model()
IDS = SHAPES["gpt_oss"].token_ids[:9]
N = len(MODEL.spec.layers)
CUT = 1


def staged(*backends: Backend, cuts: Sequence[int] = (CUT,)) -> StagedBackend:
    return StagedBackend(backends, cuts, N)


async def started(backend: StagedBackend) -> runs.Started:
    plan = runs.make_plan(MODEL, len(IDS), context=16, cuts=backend.capabilities().cuts)
    return await runs.start(backend, [plan], runs.make_state(plan.states, context=16, n_sequences=1))


def one_step(this: runs.Started) -> tuple[Program, bytes]:
    """A step of all rows of the prompt."""
    program, plan = this.programs["mixed"]
    stream = this.open_stream(IDS)
    return program, encode_step(runs._make_step(this.state, [stream], (len(IDS),)), plan.layout)


class Kept(ReferenceBackend):
    """A backend that records the names of loaded weights, and fails on request."""

    def __init__(self, **faults: Exception) -> None:
        super().__init__()
        self.weights: set[str] = set()
        self.plans: list[Plan] = []
        self.taken: list[dict[str, bytes]] = []
        self.is_closed = False
        self.faults = faults

    def _fail(self, what: str) -> None:
        if what in self.faults:
            raise self.faults.pop(what)

    async def open(self, spec: OpenSpec) -> None:
        self._fail("open")

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        self._fail("load")
        assert not self.weights & {w.name for w in weights}, "a weight was loaded twice"
        self.weights |= {w.name for w in weights}
        await super().load(weights, sources)

    async def compile(self, plan: Plan) -> Program:
        self.plans.append(plan)
        return await super().compile(plan)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        self._fail("run")
        self.taken.append(dict(inputs or {}))
        return super().run(program, step, inputs)

    async def read(self, ticket: Ticket) -> Result:
        self._fail("read")
        return await super().read(ticket)

    async def close(self) -> None:
        self.is_closed = True
        self._fail("close")


def layers_of(names: set[str]) -> set[int]:
    return {int(name.split(".")[1]) for name in names if name.startswith("blk.")}


def test_weights_and_state_of_a_layer_are_on_one_device() -> None:
    first, last = Kept(), Kept()
    backend = staged(first, last)
    asyncio.run(started(backend))
    assert layers_of(first.weights) == set(range(CUT)) and layers_of(last.weights) == set(range(CUT, N))
    assert "token_embd" in first.weights and "output_norm" in last.weights - first.weights
    sizes = [one.memory() for one in (first, last)]
    whole = ReferenceBackend()
    asyncio.run(started_alone(whole))
    memory, alone = backend.memory(), whole.memory()
    assert memory.state_bytes == sum(one.state_bytes for one in sizes)
    rings_and_tables = memory.state_bytes - alone.state_bytes
    assert 0 <= rings_and_tables < alone.state_bytes / 4, "more than rings and page tables is duplicated"
    assert memory.weight_bytes == sum(one.weight_bytes for one in sizes)
    shared = {
        w.name: w.n_bytes for w in (*first.plans[0].weights().values(), *last.plans[0].weights().values())
    }
    assert sum(shared.values()) == alone.weight_bytes


async def started_alone(backend: Backend) -> runs.Started:
    plan = runs.make_plan(MODEL, len(IDS), context=16)
    return await runs.start(backend, [plan], runs.make_state(plan.states, context=16, n_sequences=1))


def test_a_weight_is_loaded_once() -> None:
    """For any later compilation, by the device that lacks it."""
    first, last = Kept(), Kept()
    backend = staged(first, last)

    async def run() -> None:
        await started(backend)
        before = first.weights | last.weights
        await backend.compile(runs.make_plan(MODEL, 3, context=16, cuts=(CUT,)))
        assert first.weights | last.weights == before

    asyncio.run(run())
    assert len(first.plans) == len(last.plans) == 2


def test_only_the_rows_of_the_step_are_transferred() -> None:
    first, last = Kept(), Kept()
    backend = staged(first, last)

    async def run() -> None:
        this = await started(backend)
        await this.feed([this.open_stream(IDS)], [(4,), (5,)])

    asyncio.run(run())
    width = 4 * MODEL.spec.hidden_size
    assert first.taken == [{}, {}] and [len(data["x"]) for data in last.taken] == [4 * width, 5 * width]
    assert backend.memory().counters["boundary_bytes"] == 9 * width


def test_capabilities_are_the_common_ones() -> None:
    can = staged(ReferenceBackend(), NullBackend()).capabilities()
    assert (can.name, can.promise, can.max_in_flight, can.cuts) == ("reference+null", "none", 1, (CUT,))
    assert f"1 of {N} layers on NumPy" in can.device and "and the head on nothing" in can.device
    assert staged(ReferenceBackend(), ReferenceBackend()).capabilities().promise == "A+B"
    assert staged(ReferenceBackend(), Weak()).capabilities().promise == "A"
    assert staged(NullBackend(), NullBackend(), cuts=(N,)).part(1) == "the head"


class Weak(ReferenceBackend):
    """A backend with a weaker promise and no attention kernel."""

    def capabilities(self) -> Capabilities:
        can = super().capabilities()
        return replace(
            can, name="weak", promise="A", ops=can.ops - {"attention"}, fused=frozenset({"add_norm"})
        )


def test_a_stage_that_cannot_run_is_named() -> None:
    can = staged(ReferenceBackend(), Weak()).capabilities()
    assert "attention" in can.ops and not can.fused
    reason = can.refuses(Deployment(MODEL, Limits(), can).plan("mixed"))
    part = f"{N - CUT} of {N} layers and the head"
    assert reason == f"weak is to run {part}, but it has no kernel for the op attention"
    head = staged(ReferenceBackend(), Weak(), cuts=(N,)).capabilities()
    assert head.refuses(Deployment(MODEL, Limits(), head).plan("mixed")) == ""


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("open", BackendError("no driver", backend="reference")),
        ("load", OutOfMemoryError("too large", want_bytes=7)),
        ("run", BackendError("the queue is full", backend="reference")),
        ("read", DeviceLostError("it went away", backend="reference", reason="heat")),
    ],
)
def test_an_error_names_its_stage(what: str, error: Any, stage: int) -> None:
    parts = [Kept(), Kept()]
    parts[stage].faults[what] = error
    backend = staged(*parts)

    async def run() -> None:
        this = await started(backend)
        program, step = one_step(this)
        await backend.read(backend.run(program, step))

    with pytest.raises(
        type(error), match=rf"stage {stage + 1} of 2, .* on reference: {error.message}"
    ) as caught:
        asyncio.run(run())
    assert caught.value.facts == error.facts
    assert parts[0].is_closed == (what == "open" and stage == 1), "an opened backend was not closed"


def test_a_failed_step_frees_the_next() -> None:
    backend = staged(Kept(), last := Kept())

    async def run() -> list[Any]:
        this = await started(backend)
        program, step = one_step(this)
        last.faults["read"] = BackendError("once", backend="reference")
        ticket = backend.run(program, step)
        for _ in range(2):  # a repeated read raises the same error
            with pytest.raises(BackendError, match=r"stage 2 of 2.*once"):
                await backend.read(ticket)
        return [row.token_id for row in await backend.read(backend.run(program, step))]

    assert len(asyncio.run(run())) == len(IDS)


async def logits(backend: Backend, program: Program, step: bytes) -> Any:
    rows = await backend.read(backend.run(program, step))
    return np.stack([np.array(row.logits) for row in rows])


@pytest.mark.parametrize("n_turns", range(6))
def test_a_cancelled_read_loses_no_result(n_turns: int) -> None:
    """At any await: another reader continues from there."""
    backend = staged(ReferenceBackend(), ReferenceBackend(), ReferenceBackend(), cuts=(1, 2))

    async def run() -> None:
        this = await started(backend)
        program, step = one_step(this)
        want = await logits(backend, program, step)
        ticket = backend.run(program, step)
        reader = asyncio.ensure_future(backend.read(ticket))
        for _ in range(n_turns):
            await asyncio.sleep(0)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        assert np.array_equal(np.stack([np.array(r.logits) for r in await backend.read(ticket)]), want)
        await backend.read(backend.run(program, step))

    asyncio.run(run())
    assert backend.memory().counters["runs"] == 9


def test_one_step_at_a_time() -> None:
    backend = staged(ReferenceBackend(), ReferenceBackend())

    async def run() -> None:
        program, step = one_step(await started(backend))
        ticket = backend.run(program, step)
        with pytest.raises(BackendError, match="1 step at a time; read it before the next"):
            backend.run(program, step)
        await backend.read(ticket)
        await backend.read(backend.run(program, step))

    asyncio.run(run())


def test_state_is_read_after_the_step_under_way() -> None:
    """Its result stays available to its reader."""
    backend = staged(ReferenceBackend(), ReferenceBackend(), cuts=(2,))

    async def run() -> None:
        this = await started(backend)
        program, step = one_step(this)
        ticket = backend.run(program, step)
        group, unit = "kv", 1
        data = await backend.read_state(group, unit)
        halves = [await part.read_state(group, unit) for part in backend.backends]
        assert data == b"".join(halves) and all(any(half) for half in halves), "a stage has not run"
        await backend.write_state(group, unit, bytes(reversed(data)))
        assert await backend.read_state(group, unit) == bytes(reversed(data))
        assert len(await backend.read(ticket)) == len(IDS)

    asyncio.run(run())


def test_each_stage_runs_once_for_all_readers() -> None:
    """Concurrent readers of a step and of state share it; a recurrent state must advance only once."""
    backend = staged(*(NullBackend(late=Random(seed)) for seed in range(3)), cuts=(1, 2))

    async def run() -> None:
        program, step = one_step(await started(backend))
        ticket = backend.run(program, step)
        await asyncio.gather(*(backend.read(ticket) for _ in range(3)), backend.read_state("kv", 1))

    asyncio.run(run())
    assert backend.memory().counters["runs"] == 3


def test_a_ring_is_written_everywhere() -> None:
    backend = staged(ReferenceBackend(), ReferenceBackend())

    async def run() -> None:
        await started(backend)
        ring = bytes(range(128)) * 4
        await backend.write_state("tokens", 1, ring)
        assert [await part.read_state("tokens", 1) for part in backend.backends] == [ring, ring]
        assert await backend.read_state("tokens", 1) == ring

    asyncio.run(run())


def test_invalid_calls_are_refused() -> None:
    backend = staged(ReferenceBackend(), ReferenceBackend())

    async def run() -> None:
        this = await started(backend)
        with pytest.raises(BackendError, match="state 'kw' was not allocated; allocated: kv"):
            await backend.read_state("kw", 1)
        with pytest.raises(BackendError, match="has 3 bytes, expected"):
            await backend.write_state("kv", 1, b"abc")
        with pytest.raises(BackendError, match="the plan has 1 stages, expected 2"):
            await backend.compile(runs.make_plan(MODEL, 3, context=16))
        program, step = one_step(this)
        with pytest.raises(BackendError, match="'reference\\+reference' runs no single op"):
            await backend.run_buffers(program, step, {}, [])
        for inputs in ({}, {"x": b"1234"}, {"x": bytes(4 * 9 * MODEL.spec.hidden_size), "y": b""}):
            with pytest.raises(BackendError, match=r"expects boundary buffers with byte sizes \{'x':"):
                backend.backends[1].run(program.handle[1], step, inputs)

    asyncio.run(run())


def test_closing_closes_all() -> None:
    parts = [Kept(), Kept(close=BackendError("stuck", backend="reference"))]
    with pytest.raises(BackendError, match="stuck"):
        asyncio.run(staged(*parts).close())
    assert all(part.is_closed for part in parts)


@pytest.mark.parametrize("seed", range(8))
def test_a_late_device_between_others(seed: int) -> None:
    """Its steps take effect after random numbers of turns, and every step passes through it."""
    late = NullBackend(late=Random(seed))
    backend = staged(ReferenceBackend(), late, ReferenceBackend(), cuts=(1, 2))

    async def run() -> list[Any]:
        program, step = one_step(await started(backend))
        return [await logits(backend, program, step) for _ in range(2)]

    first, second = asyncio.run(run())
    assert late.counters["runs"] == 2 and np.array_equal(first, second)


def test_a_gpu_that_does_not_open_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"cpu": Kept(), "webgpu": Kept(open=BackendError("no driver", backend="webgpu"))}
    monkeypatch.setattr("camelid.loading.choose.open_backend", parts.__getitem__)
    with pytest.raises(BackendError, match="no driver"):
        asyncio.run(open_layers(LoadOptions(), 2, MODEL))
    assert parts["cpu"].is_closed

"""Arrays in the device's memory that other libraries use in place: logits, embeddings, inputs of a stage.

The rig's memory is the processor's, so NumPy is the consumer and the producer of DLPack's capsules.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import pytest
from tests.cuda.rig import SMALL, RigCompiler, driver_library, live, open_rig
from tests.cuda.rig import open_device as open_rig_device
from tests.support.gguf_files import write_tiny_llama
from tests.support.model import stress_encoder
from tests.support.model.runs import make_state, start
from tests.support.model.stress import bert
from tests.support.model.stress_runs import CONTEXT, make_model

import camelid
from camelid.errors import BackendError, RequestError
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.stages import layer_ranges, split
from camelid.plan.step import (
    FROM_ID,
    Capacity,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
    encode_step,
)
from camelid.plan.weights import inline_f32
from camelid_native.cuda import backend, dlpack
from camelid_native.cuda.backend import CudaBackend
from camelid_native.cuda.device_driver import CUDA, DriverDevice
from camelid_native.cuda.program import SLOTS

IDS = tuple(range(3, 153))  # more than a step of the rig


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(backend, "open_backend", open_rig)
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=32, ffn=96, context=512)
    return str(tmp_path / "tiny.gguf")


@pytest.fixture
def llm(path: str) -> Any:
    with camelid.load(path, backend="cuda", parallel=2) as llm:
        yield llm


def test_logits_stay_on_the_device(llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    want = np.asarray(llm.logits(IDS))
    monkeypatch.setattr("camelid_native.cuda.program.CudaProgram._copy_back", no_floats)
    array = llm.logits_on_device(IDS)
    got = np.from_dlpack(array)
    assert got.ctypes.data == array._at and array.shape == got.shape == (len(IDS), 320)
    assert np.array_equal(got, want) and len(np.unique(want)) > 1000


def no_floats(self: Any, slot: int, section: Any, n: int) -> None:
    assert section.name == "result", "floats go to the host"
    self.device.copy(self._results[slot][0] + section.offset, section.at, section.each * n)


def test_an_array_outlives_the_model_and_frees_its_memory(path: str) -> None:
    empty = live()
    with camelid.load(path, backend="cuda", parallel=2) as llm:
        loaded = live()
        got = np.from_dlpack(llm.logits_on_device(IDS))
        capsule: Any = llm.logits_on_device(IDS[:5]).__dlpack__()
        want = got.copy()
    assert np.array_equal(got, want) and empty < live() < loaded
    del got
    gc.collect()
    assert live() > empty, "an unread capsule keeps its array and the device"
    del capsule
    gc.collect()
    assert live() == empty


def test_an_array_of_a_closed_device_gets_no_rows(llm: Any) -> None:
    own, array = llm._running.backend, llm.logits_on_device(IDS[:4])
    program = llm._engine.programs._programs["all_logits"][0]
    words = bytes(4 * program.plan.layout.n_words)
    with pytest.raises(
        BackendError, match="returns 0 rows of 320 floats for row 5 on of an array 4x320; make"
    ):
        own.run_into(program, words, array, 5)
    with pytest.raises(BackendError, match="of an array 4x8"):
        own.run_into(program, words, own.array(4, 8), 0)
    asyncio.run(own.recover())  # which opens the device anew
    with pytest.raises(BackendError, match="closed or lost"):
        own.run_into(program, words, array, 0)
    llm.close()
    with pytest.raises(RequestError, match="was closed"):
        llm.logits_on_device(IDS)


def test_a_gpus_memory_is_not_for_numpy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy raises an error of its own, or drops the capsule: the loan ends."""
    monkeypatch.setattr(backend, "open_backend", lambda: opened(dlpack.CUDA))
    empty = live()
    with camelid.load(path, backend="cuda", parallel=2) as llm:
        array = llm.logits_on_device(IDS[:4])
        with pytest.raises(BufferError, match=r"in a GPU's memory: use torch or CuPy, or logits\(\)"):
            np.from_dlpack(array)
        for options in ({"copy": True}, {"dl_device": (dlpack.CPU, 0)}):
            with pytest.raises(BufferError, match="shared in place"):
                array.__dlpack__(stream=None, **options)
        with suppress(Exception):  # NumPy's error, which the end of the capsule may replace
            np.from_dlpack(Streamed(array))
        del array
    gc.collect()
    assert live() == empty


class Streamed:
    """An array that hides from its consumer that the consumer has no streams."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> dlpack.DeviceId:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__(stream=None)


def test_a_recovery_takes_the_arrays_with_it(llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array keeps no lost device from being opened again, and a loss on the way is made good."""
    want = np.asarray(llm.logits(IDS))
    held = llm.logits_on_device(IDS[:4])
    monkeypatch.setattr("camelid.engine.recovery.PAUSE_S", 0.0)
    run_into, reopened = CudaBackend.run_into, CudaBackend.recover

    def lost_once(self: CudaBackend, *arguments: Any) -> Any:
        monkeypatch.setattr(CudaBackend, "run_into", run_into)
        ticket = self.run_into(*arguments)
        monkeypatch.setenv("EMU_LOST", "1")  # which the next wait shows
        return ticket

    async def recovered(self: CudaBackend) -> bool:
        monkeypatch.delenv("EMU_LOST", raising=False)
        return await reopened(self)

    monkeypatch.setattr(CudaBackend, "run_into", lost_once)
    monkeypatch.setattr(CudaBackend, "recover", recovered)
    array = llm.logits_on_device(IDS)
    assert np.array_equal(np.from_dlpack(array), want) and llm.counters.recoveries == 1
    assert held.is_lost and not array.is_lost
    with pytest.raises(BufferError, match="lost with its device"):
        np.from_dlpack(held)


def test_full_slots_take_no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before a copy is enqueued, which would read an array that the error frees."""

    async def work() -> None:
        own, plan, x = open_rig(), second_stage(), np.ones((3, 8), np.float32)
        started = await start(own, [plan], make_state(plan.states, context=CONTEXT, n_sequences=1))
        program, words = started.programs["mixed"][0], words_of(plan)
        tickets = [own.run(program, words, {"x": x}) for _ in range(SLOTS)]
        monkeypatch.setattr(backend, "write", None)
        with pytest.raises(BackendError, match="read one first"):
            own.run(program, words, {"x": x})
        for ticket in tickets:
            await own.read(ticket)
        await own.close()

    asyncio.run(work())


def test_a_backend_without_a_device_names_the_way_out() -> None:
    with (
        camelid.load("cria", backend="reference") as llm,
        pytest.raises(RequestError, match=r"'reference' keeps no results on a device; call logits\(\)"),
    ):
        llm.logits_on_device([1, 2])


async def embeddings(on_device: bool) -> Any:
    """A row for each of two texts."""
    texts = [(ids, stress_encoder.places(len(ids))) for ids in ((4, 5, 6), (7, 8))]
    plan = stress_encoder.encode_plan(make_model(bert.SPEC, bert.WEIGHTS), 5, 2)
    started = await start(open_rig(), [plan], make_state(plan.states, context=CONTEXT, n_sequences=2))
    streams = [started.open_stream(ids, static_rows=len(ids)) for ids, _ in texts]
    step = stress_encoder.whole_step(started.state, streams, texts)
    step.outputs = [(sequence.first_row, n, 0) for n, sequence in enumerate(step.sequences)]
    own: Any = started.backend
    if on_device:
        array = own.array(3, bert.SPEC.hidden_size)
        ticket = own.run_into(started.programs["encode"][0], encode_step(step, plan.layout), array, 1)
        found = np.from_dlpack(array).copy()  # before the read: the capsule waits for the step
        assert [row.logits for row in await own.read(ticket)] == [None, None]
    else:
        found = np.stack([np.asarray(row.logits) for row in await started.run("encode", step)])
    await own.close()
    return found


def test_embeddings_stay_on_the_device() -> None:
    want, got = (asyncio.run(embeddings(on_device)) for on_device in (False, True))
    assert got[1:].tobytes() == want.tobytes() and not got[0].any() and want.any()


def second_stage() -> Plan:
    """A stage that takes rows x [T, 8] and emits their norms."""
    table = inline_f32("table", [0.0] * 16, (2, 8))
    key = ProgramKey(entry="mixed", capacity=Capacity(rows=4, sequences=1, outputs=4, updates=0))
    plan = PlanBuilder(key, (StateSpec("tokens", "ring", (), (("id", 1),), 64),))
    x = plan.embed(table, "tokens")
    plan.cut("rest")
    plan.emit(plan.gather_rows(plan.norm(x, None, 0.0)))
    return split(plan.build(), layer_ranges((1,), 2))[1]


def words_of(plan: Plan) -> bytes:
    """A step of three rows."""
    step = Step(rows=[StepRow(FROM_ID, 0, 0, i, (i,)) for i in range(3)])
    step.sequences = [StepSequence(first_row=0, rows=3, groups=((0, 0, 0),), sampling=0)]
    step.sampling, step.outputs = [StepSampling()], [(i, 0, 0) for i in range(3)]
    return encode_step(step, plan.layout)


class Rows:
    """Rows of NumPy on a device of DLPack's, which notes its stream and its end."""

    def __init__(self, rows: Any, device: dlpack.DeviceId, seen: list[Any]) -> None:
        self.rows, self.device, self.seen = rows, device, seen
        finalize(rows, seen.append, "freed")

    def __dlpack_device__(self) -> dlpack.DeviceId:
        return self.device

    def __dlpack__(self, *, stream: int | None) -> Any:
        self.seen.append(stream)
        return self.rows.__dlpack__()


def opened(kind: int) -> CudaBackend:
    """A rig whose memory is that of a device of DLPack's."""
    open_rig_device().close()
    api = replace(CUDA, dlpack=kind)
    return CudaBackend(lambda number: (DriverDevice(api, str(driver_library())), RigCompiler()), sizes=SMALL)


async def normed(own: CudaBackend, given: list[Any], seen: list[Any] | None = None) -> Any:
    """The rows that the stage emits for the only input in a list, which loses it."""
    plan = second_stage()
    started = await start(own, [plan], make_state(plan.states, context=CONTEXT, n_sequences=1))
    try:
        ticket = own.run(started.programs["mixed"][0], words_of(plan), {"x": given.pop()})
        assert "freed" not in (seen or []), "the device has yet to read it"
        found = np.stack([np.asarray(row.logits) for row in await own.read(ticket)])
        assert not seen or "freed" in seen, "the step is over"
        return found
    finally:
        await own.close()


@pytest.mark.parametrize("kind", [dlpack.CPU, dlpack.CUDA])  # the arrays are on the device, or on the host
def test_inputs_may_be_arrays(kind: int) -> None:
    x, seen = np.random.default_rng(3).standard_normal((3, 8), np.float32), list[Any]()
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True))
    want = asyncio.run(normed(opened(kind), [x.tobytes()]))
    assert np.abs(want - exact).max() < 1e-6
    rows = [Rows(x.copy(), (dlpack.CPU, 0), seen)]
    is_read_later = kind == dlpack.CPU
    assert np.array_equal(asyncio.run(normed(opened(kind), rows, seen if is_read_later else None)), want)
    assert seen == [None, "freed"]


def test_an_array_of_the_device_is_made_ready_for_its_stream() -> None:
    x, seen = np.ones((3, 8), np.float32), list[Any]()
    asyncio.run(normed(opened(dlpack.CUDA), [Rows(x, (dlpack.CUDA, 0), seen)]))
    stream = seen[0]
    assert isinstance(stream, int) and stream > 2, "1 and 2 are the default streams"


class Odd:
    """An array whose capsule is none."""

    def __dlpack_device__(self) -> dlpack.DeviceId:
        return (dlpack.CPU, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return "capsule"


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.ones((3, 8), np.float64), r"another dtype \(.*2, 64, 1\)\) than f32; convert"),
        (np.ones((3, 8), np.int32), r"another dtype \(.*0, 32, 1\)\) than f32; convert"),
        (np.ones((3, 16), np.float32)[:, ::2], "gaps between its elements"),
        (np.ones((8, 3), np.float32), r"has the shape \[8, 3\]; \[rows, 8\] is expected"),
        (np.ones((4, 8), np.float32), "expects boundary buffers with byte sizes .*96.*got .*128"),
        (Rows(np.ones((3, 8), np.float32), (dlpack.ROCM, 1), []), "is on rocm:1, the model on cpu:0"),
        (np.broadcast_to(np.float32(1), (3, 8)), "'x' cannot be shared: .*read-?only.*; copy the array"),
        (Odd(), "__dlpack__ returned no unread capsule"),
    ],
    ids=["f64", "i32", "strided", "shape", "rows", "device", "readonly", "no capsule"],
)
def test_other_arrays_are_refused(x: Any, told: str) -> None:
    with pytest.raises(BackendError, match=told):
        asyncio.run(normed(open_rig(), [x]))

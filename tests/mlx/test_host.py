"""The backend's contract: its errors, what it frees, and its memory as forecast."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.mlx.decoding import decoded
from tests.support.parity.case_tools import array, empty, weight

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.common.op_runner import OpCase, case_plan, run_case
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.registry import open_backend as open_named
from camelid.errors import BackendError, DeviceLostError, ModelFormatError, OutOfMemoryError, RequestError
from camelid.plan.step import Step, encode_step
from camelid.plan.weights import Part
from camelid_native.mlx.backend import MlxBackend, open_backend
from camelid_native.mlx.library import TF32

CASE = OpCase(
    op="linear",
    views={"y": empty(2, 64), "x": array(1, 2, 64)},
    weights={"weight": weight("q8_0", 2, 64, 64)},
)
POOLS = {"other": PoolSize(2, 2, 1), "kv": PoolSize(2, 2, 1), "tokens": PoolSize(2)}
Work = Callable[[MlxBackend, Program], Awaitable[None]]


def weight_bytes(backend: MlxBackend) -> int:
    """Bytes of the product's matrix: float32 on a CPU, blocks of q8_0 on a GPU."""
    return 4 * 64 * 64 if backend.capabilities().is_software else 64 * 2 * 34


def with_program(work: Work) -> None:
    """Runs work on an open backend with the program of a product."""

    async def run() -> None:
        backend, (plan, _) = open_backend(), case_plan(CASE)
        await backend.open(OpenSpec())
        await backend.load(list(plan.weights().values()), {})
        await backend.allocate(plan.states, POOLS)
        try:
            await work(backend, await backend.compile(plan))
        finally:
            await backend.close()

    asyncio.run(run())


def step_of(program: Program) -> bytes:
    return encode_step(Step(), program.plan.layout)


@pytest.mark.parametrize("change", ["state", "weights"])
def test_a_stale_program_is_refused(change: str) -> None:
    async def work(backend: MlxBackend, program: Program) -> None:
        if change == "state":
            await backend.allocate(program.plan.states, POOLS)
        else:
            await backend.load(list(program.plan.weights().values()), {})
        with pytest.raises(BackendError, match="stale; compile it again"):
            backend.run(program, step_of(program))

    with_program(work)


def test_a_closed_backend_names_the_way_out() -> None:
    with pytest.raises(BackendError, match=r"not open; call open\(\) first"):
        asyncio.run(open_backend().read_state("kv", 1))


@pytest.mark.parametrize(
    ("group", "unit", "told"), [("kv", 2, "no unit 2"), ("else", 0, "no unit 0 of state 'else'")]
)
def test_an_unknown_unit_is_refused(group: str, unit: int, told: str) -> None:
    async def work(backend: MlxBackend, _: Program) -> None:
        with pytest.raises(BackendError, match=told):
            await backend.read_state(group, unit)

    with_program(work)


def test_state_of_another_size_is_refused_and_changes_nothing() -> None:
    async def work(backend: MlxBackend, _: Program) -> None:
        before = await backend.read_state("kv", 1)
        with pytest.raises(BackendError, match="was it saved with another kv_type"):
            await backend.write_state("kv", 1, before[:-1])
        assert await backend.read_state("kv", 1) == before

    with_program(work)


def test_an_unknown_adapter_is_refused() -> None:
    with pytest.raises(RequestError, match="adapter is '7', but MLX has here: cpu"):
        asyncio.run(open_backend().open(OpenSpec(adapter="7")))


def test_a_truncated_file_is_refused() -> None:
    plan, _ = case_plan(CASE)
    (whole,) = plan.weights().values()
    cut = replace(whole, shape=(1 << 20, 64), parts=(Part(__file__, 0, 68 << 20),))

    async def load() -> None:
        backend = open_backend()
        await backend.open(OpenSpec())
        try:
            await backend.load([cut], {__file__: __file__})
        finally:
            await backend.close()

    with pytest.raises(ModelFormatError, match="truncated"):
        asyncio.run(load())


def test_state_beyond_the_machine_s_memory_is_refused() -> None:
    async def work(backend: MlxBackend, program: Program) -> None:
        with pytest.raises(OutOfMemoryError, match=r"the state of all sequences need .* the device has"):
            await backend.allocate(program.plan.states, {**POOLS, "kv": PoolSize(1 << 40, 2, 1)})

    with_program(work)


def test_a_failure_of_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(backend: MlxBackend, program: Program) -> None:
        from camelid_native.mlx import worker

        def fail(*_: object) -> None:
            raise RuntimeError("[METAL] Command buffer execution failed")

        monkeypatch.setattr(worker.Worker, "_wait", fail)
        with pytest.raises(DeviceLostError, match=r"a step failed on the device: \[METAL\] Command"):
            await run_case(backend, CASE)

    with_program(work)


def test_memory_is_as_forecast() -> None:
    """Weights, state and its tables, to the byte."""

    async def work(backend: MlxBackend, program: Program) -> None:
        plan, used = program.plan, backend.memory()
        forecast = backend.forecast({"op": plan}, POOLS)
        assert used.weight_bytes == forecast.weights == weight_bytes(backend)
        units = sum(POOLS[s.name].units * s.unit_bytes for s in plan.states)
        tables = sum(4 * pool.table_rows * pool.table_cols for pool in POOLS.values())
        assert used.state_bytes == units + tables + forecast.tables

    with_program(work)


def test_an_error_on_the_worker_reaches_read_and_the_backend_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(backend: MlxBackend, program: Program) -> None:
        def fail(*_: object) -> None:
            raise ValueError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(program.handle, "_function", fail, raising=True)
            with pytest.raises(ValueError, match="planted"):
                await backend.read(backend.run(program, step_of(program)))
        await run_case(backend, CASE)

    with_program(work)


def test_close_frees_weights_and_state_of_a_held_program() -> None:
    from camelid_native.mlx.arrays import mx

    gc.collect()  # arrays of tests before

    async def work(backend: MlxBackend, program: Program) -> None:
        await run_case(backend, CASE)
        held, used = mx.get_active_memory(), backend.memory()
        await backend.close()
        assert mx.get_active_memory() <= held - used.weight_bytes - used.state_bytes
        assert program.plan and not backend.memory().weight_bytes + backend.memory().state_bytes

    with_program(work)


@pytest.mark.parametrize(("system", "machine"), [("win32", "AMD64"), ("darwin", "x86_64")])
def test_a_system_without_mlx_is_named(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    told = f"macOS with Apple silicon, and on Linux; this is {system} on {machine}. Choose the backend webgpu"
    with pytest.raises(BackendError, match=told):
        open_named("mlx")


@pytest.mark.parametrize(("value", "code"), [("0", 0), ("1", 1), (None, 1)])
def test_an_mlx_that_may_round_to_tf32_is_refused(value: str | None, code: int) -> None:
    environment = {name: text for name, text in os.environ.items() if name != TF32}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **({TF32: value} if value else {})}
    script = "import mlx.core; from camelid.backends.registry import open_backend; open_backend('mlx')"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == code
    assert (f"needs the environment variable {TF32}=0" in done.stderr) == (code == 1)


def test_promise_a_on_a_gpu_excludes_ops_of_mlx_with_sums() -> None:
    from camelid_native.mlx.device import WITHOUT, promise_of
    from camelid_native.mlx.kernels import KERNELS

    assert promise_of(is_gpu=False) == "A" and set(WITHOUT) <= set(KERNELS)
    assert promise_of(is_gpu=True) == f"A; none of models with {', '.join(WITHOUT)}"


@pytest.mark.slow
def test_compiled_functions_draw_the_same_tokens(compiled: None) -> None:
    """The one test that runs compiled functions: a minute where MLX's kernels are not on disk yet."""
    how = {"temperature": 6.0, "seed": 9}
    assert decoded(open_backend(), 24, **how) == decoded(ReferenceBackend(), 24, **how)

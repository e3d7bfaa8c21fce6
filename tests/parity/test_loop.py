"""The closed loop on a device: ids stay there, two steps are in flight, no object is created after
warm-up.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.model import file_runs
from tests.support.parity.adapters import DRIVERS, need_driver
from tests.support.parity.compare import nmse

from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.webgpu import host_python
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.backends.webgpu.host_python import WgpuHost
from camelid.engine.programs import CANDIDATES
from camelid.engine.request import Request
from camelid.loading import choose
from camelid.loading import start as loading
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel
from camelid.plan.tiers import BATCH, TAIL
from camelid.sampling.params import SamplingParams

pytestmark = [pytest.mark.parity, pytest.mark.slow]

PROMPT = tuple(range(40, 75))
N_TOKENS = 60


class CountingDevice:
    """Proxies the device and counts created objects. Encoders are WebGPU's own."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.created: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            self.created[name] += 1
        return getattr(self.device, name)


@pytest.fixture(scope="module", params=share_of([64, 256]))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the usual width, whose compiled pipelines drivers cache, and a wider one."""
    path, width = tmp_path_factory.mktemp("loop") / "tiny.gguf", request.param
    wide = {"hidden": width, "head_dim": width // 4, "ffn": width * 3 // 2}
    write_tiny_llama(path, seed=5, n_layers=3, context=512, **wide)
    return path


def webgpu(hook: Callable[[Any], Any] = lambda device: device) -> WebGpuBackend:
    return WebGpuBackend(WgpuHost(hook))


async def generate(running: RunningModel, sampling: SamplingParams) -> list[int]:
    request = Request(prompt_ids=PROMPT, max_tokens=N_TOKENS, sampling=sampling)
    stream = running.engine.submit(request)
    return [event.token_id async for event in stream if event.token_id is not None]


async def run(
    make: Callable[[], Any], model: Path, sampling: SamplingParams, **options: Any
) -> tuple[list[int], RunningModel, Any]:
    """Generated ids, the running model, and the objects that its device had created before the second
    request.
    """
    backend = make()
    original, choose.open_backend = choose.open_backend, lambda name: backend
    try:
        running = await loading.start(str(model), LoadOptions(backend="webgpu", **options))
    finally:
        choose.open_backend = original
    ids = await generate(running, sampling)
    return ids, running, backend


GREEDY = SamplingParams(temperature=0, seed=0)
WARM = SamplingParams(temperature=0.9, seed=12345)


@cache
def on_reference(model: Path, sampling: SamplingParams) -> list[int]:
    return asyncio.run(run(ReferenceBackend, model, sampling))[0]


@pytest.mark.parametrize("name", share_of(DRIVERS))
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "temperature"])
def test_tokens_equal_the_reference(name: str, sampling: SamplingParams, model: Path) -> None:
    async def both() -> tuple[list[int], Any, Any]:
        ids, running, backend = await run(webgpu, model, sampling, adapter=need_driver(name))
        assert name in backend.capabilities().device
        return ids, running.engine.counters, backend.memory().counters

    ids, engine, device = asyncio.run(both())
    assert ids == on_reference(model, sampling)
    assert len(set(ids)) > 5
    assert engine.ring_rows >= N_TOKENS - 2  # the host submitted them without these ids
    assert engine.max_in_flight == device["max_in_flight"] == 2
    assert device["bytes_read_back"] <= 64 * N_TOKENS


@pytest.mark.parametrize("kv_type", share_of(["two-tier-q4_0", "f16", "two-tier"]))
def test_tokens_of_every_kv_type_equal_the_reference(kv_type: str, model: Path) -> None:
    """Long enough that rows leave the tail; the engine gives each group its own pages."""
    prompt = tuple(40 + 7 * i % 150 for i in range(TAIL + BATCH + 20))

    async def ids(make: Callable[[], Any], **how: Any) -> list[int | None]:
        _, running, _ = await run(make, model, GREEDY, kv_type=kv_type, **how)
        request = Request(prompt_ids=prompt, max_tokens=12, sampling=GREEDY)
        return [event.token_id async for event in running.engine.submit(request)]

    got = asyncio.run(ids(webgpu, adapter=need_driver("llvmpipe")))
    assert got == asyncio.run(ids(ReferenceBackend)) and len(set(got)) > 2


REQUESTS = (
    (PROMPT, SamplingParams(temperature=0, seed=0)),
    (tuple(range(90, 190)), SamplingParams(temperature=0.9, seed=7)),
    (tuple(range(20, 32)), SamplingParams(temperature=1.3, seed=2**40 + 5)),
)
Answer = list[tuple[int | None, float]]


async def answer(running: RunningModel, number: int, *, after: int) -> Answer:
    """Ids and logprobs of one request, submitted after `after` turns of the loop."""
    for _ in range(after):
        await asyncio.sleep(0)
    prompt, sampling = REQUESTS[number]
    stream = running.engine.submit(Request(prompt_ids=prompt, max_tokens=24, sampling=sampling))
    return [(event.token_id, event.logprob) async for event in stream]


async def alone_and_together(make: Callable[[], Any], model: Path, adapter: str) -> list[list[Answer]]:
    _, running, _ = await run(make, model, GREEDY, adapter=adapter, parallel=3)
    alone = [await answer(running, i, after=0) for i in range(3)]
    steps = running.engine.counters.steps_submitted
    together = await asyncio.gather(*(answer(running, i, after=5 * i) for i in range(3)))
    assert running.engine.counters.steps_submitted - steps < 60, "the three did not share steps"
    return [alone, list(together)]


@cache
def alone_on_reference(model: Path) -> list[Answer]:
    return asyncio.run(alone_and_together(ReferenceBackend, model, ""))[0]


@pytest.mark.parametrize("name", share_of(DRIVERS))
def test_a_batch_changes_no_bit(name: str, model: Path) -> None:
    """Promise A: three requests in shared steps get the ids and bits that each gets alone."""
    alone, together = asyncio.run(alone_and_together(webgpu, model, need_driver(name)))
    assert together == alone
    assert [[i for i, _ in a] for a in together] == [[i for i, _ in a] for a in alone_on_reference(model)]


@pytest.mark.parametrize("name", share_of(DRIVERS))
def test_chunks_change_logits_by_less_than_promised(name: str, model: Path) -> None:
    """Promise B within NMSE 1e-5: a prompt whole, in chunks, and row by row."""

    def logits(chunks: list[int]) -> Any:
        how: Any = {"adapter": need_driver(name), "fused": frozenset({"add_norm", "linear_glu"})}
        loaded, steps = file_runs.load_gguf(model), [(n,) for n in chunks]
        return asyncio.run(file_runs.run(webgpu(), loaded, [PROMPT], steps=steps, **how))[0]

    whole = logits([35])
    assert nmse(logits([16, 10, 9]), whole) <= 1e-5
    assert nmse(logits([1] * 35), whole) <= 1e-5


def test_nothing_is_created_after_warm_up(model: Path) -> None:
    devices: list[CountingDevice] = []

    def hook(device: Any) -> CountingDevice:
        devices.append(CountingDevice(device))
        return devices[0]

    async def twice() -> tuple[Counter[str], Counter[str]]:
        _, running, _ = await run(lambda: webgpu(hook), model, GREEDY, adapter=need_driver("llvmpipe"))
        warm = Counter(devices[0].created)
        await generate(running, GREEDY)
        return warm, devices[0].created - warm

    warm, created = asyncio.run(twice())
    assert {"create_buffer", "create_bind_group", "create_compute_pipeline"} <= warm.keys()
    assert created.keys() == {"create_command_encoder"}


@pytest.mark.faults
@pytest.mark.parametrize("model", [64], indirect=True)
def test_streams_continue_on_a_fresh_device(model: Path) -> None:
    """Three streams lose their device; then an idle engine loses it, and a request needs a new program."""
    devices, told = list[Any](), list[str]()

    async def lose() -> list[Answer]:
        def hook(device: Any) -> Any:
            return devices.append(device) or device

        how = {"adapter": need_driver("llvmpipe"), "parallel": 3}
        _, running, _ = await run(lambda: webgpu(hook), model, GREEDY, **how)
        before, n_steps = running.backend.memory(), running.engine.counters.steps_retired
        running.engine.recovery.notices.append(told.append)

        async def destroy() -> None:
            while running.engine.counters.steps_retired < n_steps + 8:
                await asyncio.sleep(0)
            devices[-1].destroy()

        loss = asyncio.create_task(destroy())
        answers = await asyncio.gather(*(answer(running, i, after=5 * i) for i in range(3)))
        await loss
        assert len(told) == 1 and running.engine.counters.lost_steps
        devices[-1].destroy()
        await running.compile(CANDIDATES)
        answers.append(await answer(running, 1, after=0))
        now = running.backend.memory()
        assert (now.weight_bytes, now.state_bytes) == (before.weight_bytes, before.state_bytes)
        assert running.engine.counters.recoveries == 2 and running.engine.is_idle
        return answers

    want = [[i for i, _ in each] for each in alone_on_reference(model)]
    assert [[i for i, _ in each] for each in asyncio.run(lose())] == [*want, want[1]]
    assert all("Parent device is lost" in text and "open again after" in text for text in told), told


@pytest.mark.exhaustive
def test_weights_on_the_device_have_the_files_size(tmp_path: Path) -> None:
    write_tiny_llama(wide := tmp_path / "wide.gguf", seed=5, n_layers=3, context=512)

    async def sizes() -> tuple[int, int]:
        _, running, backend = await run(webgpu, wide, GREEDY, adapter=need_driver("llvmpipe"))
        return backend.memory().weight_bytes, running.file.model.weight_bytes

    on_device, in_file = asyncio.run(sizes())
    # plus 256 rows of the RoPE table, 3.3 % of this tiny model
    assert in_file <= on_device <= 1.1 * in_file


def test_saved_tape_replays_without_camelid(model: Path, tmp_path: Path) -> None:
    async def record() -> list[int]:
        ids, _, backend = await run(webgpu, model, GREEDY, adapter=need_driver("llvmpipe"), record_tape=True)
        backend.save_tape(str(tmp_path / "tape.json"))
        return ids

    ids = asyncio.run(record())
    shutil.copy(host_python.__file__, tmp_path / "host_python.py")
    command = [sys.executable, "-P", "host_python.py", "tape.json", str(model), "llvmpipe"]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    absent = subprocess.run(
        [sys.executable, "-P", "-c", "import camelid"], cwd=tmp_path, env=clean, check=False
    )
    if absent.returncode == 0:  # an editable installation: ignore site-packages' path files
        command[1:1] = ["-S"]
        clean["PYTHONPATH"] = str(Path(host_python.wgpu.__file__).parents[1])
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    replayed = [int(word) for word in done.stdout.split()]
    assert replayed[: len(ids)] == ids
    assert "0 differ" in done.stderr and "llvmpipe" in done.stderr

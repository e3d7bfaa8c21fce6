"""Tensor parallelism on simulated devices: one graph for all, with sums between devices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import live, open_device, open_rig, open_rigs
from tests.parity.test_cria import FEW, PARALLEL, SEED, answer, mismatches, wanted
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import HfCase, load_case, write_hf
from tests.support.model.file_runs import load_hf, reference_logits, run
from tests.support.model.parallel_runs import parallel

import camelid
from camelid.errors import BackendError, OutOfMemoryError, RequestError
from camelid.loading.devices import devices_of
from camelid.loading.forecast import estimate_devices
from camelid_native.cuda import backend
from cria.graded_items import first_prompts

pytestmark = [pytest.mark.parity, pytest.mark.slow]

BOUND = 1e-5
CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"
COUNTS = {"gpt2": 4, "mixtral": 2, "gemma2": 2, "qwen3_moe": 2, "llama_bias": 2}  # devices: heads of keys
ORDERS = ("0", "1")  # of devices: what is not waited for is not done yet
CASES = [(load_case(name), n, order) for name, n in COUNTS.items() for order in ORDERS]


@pytest.fixture
def rigs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `cuda` on several devices name the rig."""
    monkeypatch.setattr(backend, "open_parallel", open_rigs)
    monkeypatch.setattr(backend, "open_backend", open_rig)


@pytest.mark.parametrize(("case", "n", "order"), share_of(CASES, n=2))
def test_logits_equal_those_of_one_device(
    case: HfCase, n: int, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 weights, whose products round no input: only the order of sums differs."""
    monkeypatch.setenv("EMU_ORDER", order)
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="f32"))
    longest, before = max(map(len, case.token_ids)), live()
    devices = parallel(open_rigs, loaded.model, n, longest)
    got = asyncio.run(run(devices, loaded, case.token_ids, 13))
    assert live() == before
    want = asyncio.run(run(open_rig(), loaded, case.token_ids, 13))
    for rows in (want, reference_logits(loaded, case.token_ids)):
        assert all(np.abs(a - b).max() <= BOUND for a, b in zip(got, rows, strict=True))


@pytest.mark.usefixtures("rigs")
@pytest.mark.parametrize("n_prompts", share_of([1, FEW]))
def test_tokens_of_cria_equal_the_reference(n_prompts: int) -> None:
    prompts, want = first_prompts(SEED, n_prompts), wanted(CRIA, n_prompts)

    async def together() -> list[list[int]]:
        how: dict[str, Any] = {"backend": "cuda", "tensor_parallel": 2, "parallel": PARALLEL}
        async with await camelid.aload(str(CRIA), **how) as llm:
            assert llm.capabilities.name == "2xcuda" and llm.capabilities.max_in_flight == 2
            return list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))

    assert mismatches(CRIA, prompts, asyncio.run(together()), want) == []


@pytest.mark.exhaustive  # ordinary runs hold two stages at once in `test_models.py`
@pytest.mark.usefixtures("rigs")
@pytest.mark.parametrize("n_prompts", [2, FEW])
def test_tokens_of_cria_on_stages_equal_the_reference(n_prompts: int) -> None:
    """The stages have as many steps under way as their number."""
    prompts, want = first_prompts(SEED, n_prompts), wanted(CRIA, n_prompts)

    async def together() -> list[list[int]]:
        how: dict[str, Any] = {"backend": "cuda", "pipeline_parallel": 2, "adapter": "3,1"}
        async with await camelid.aload(str(CRIA), **how, parallel=PARALLEL) as llm:
            found = await asyncio.gather(*(answer(llm, prompt) for prompt in prompts))
            assert llm.capabilities.device.count("emulator") == 2
            assert llm.memory().counters["stages_at_once"] == llm.capabilities.n_stages
            return list(found)

    assert mismatches(CRIA, prompts, asyncio.run(together()), want) == []


def used(number: int) -> int:
    """Bytes that are allocated on a simulated device."""
    device = open_device(number)
    try:
        return device.facts().memory_bytes - device.free_bytes()
    finally:
        device.close()


async def answers(path: Path, n: int, **how: Any) -> list[list[int]]:
    """Ids that n devices draw for some prompts at once, with a seed."""
    options: dict[str, Any] = {"backend": "cuda", "tensor_parallel": n, "context": 64, **how}
    async with await camelid.aload(str(path), **options) as llm:
        draws = (llm.agenerate([1, 5, 9, 5 + i], max_tokens=12, temperature=1.5, seed=i) for i in range(3))
        return [list(done.token_ids) for done in await asyncio.gather(*draws)]


@pytest.mark.usefixtures("rigs")
def test_company_changes_no_drawn_id(tmp_path: Path) -> None:
    """Also with prompts in company and alone; all devices draw alike, or `read` raises an error."""
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=128, context=64)
    together, alone = (asyncio.run(answers(tmp_path / "tiny.gguf", 2, parallel=k)) for k in (3, 1))
    assert together == alone and len({tuple(ids) for ids in together}) == 3


@pytest.mark.usefixtures("rigs")
@pytest.mark.parametrize("option", ["tensor_parallel", "pipeline_parallel"])
def test_the_forecast_of_each_device_is_its_allocation(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=128, context=64)
    how: dict[str, Any] = {"backend": "cuda", "context": 64, option: 2}
    before = [used(number) for number in range(2)]  # devices that earlier tests lost free nothing
    with camelid.load(str(tmp_path / "tiny.gguf"), **how) as llm:
        running: Any = llm._running
        devices = devices_of(running.backend, 2)
        found = [each.total - each.process for each in estimate_devices(running.deployment, devices)]
        assert [used(number) - before[number] for number in range(2)] == found
    monkeypatch.setenv("EMU_MEMORY", str(max(map(sum, zip(found, before, strict=True))) - 1))
    with pytest.raises(OutOfMemoryError, match=f"need {max(found):,} bytes .* or more GPUs"):
        camelid.load(str(tmp_path / "tiny.gguf"), **how)


@pytest.mark.usefixtures("rigs")
@pytest.mark.parametrize(
    ("adapter", "error", "words"),
    [
        ("0", RequestError, "expected the numbers of 2 GPUs, such as 0,1"),
        ("1,1", RequestError, "such as 0,1, each once"),
        ("0,one", RequestError, "expected the number of a GPU"),
        (
            "0,8",
            BackendError,
            "device 2 of 2: cuda: this machine has 8 GPUs of CUDA, so none has",
        ),
    ],
)
def test_numbers_of_devices_are_checked(adapter: str, error: type[Exception], words: str) -> None:
    before = live()
    with pytest.raises(error, match=words):
        camelid.load("cria", backend="cuda", tensor_parallel=2, adapter=adapter)
    assert live() == before


@pytest.mark.usefixtures("rigs")
def test_devices_of_any_numbers_each_hold_a_share(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=128, context=64)
    with camelid.load(str(tmp_path / "tiny.gguf"), backend="cuda", tensor_parallel=2, adapter="5,2") as llm:
        assert llm.generate("a", max_tokens=2).token_ids

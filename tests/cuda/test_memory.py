"""Memory on the rig: the forecast is the allocation to the byte, and a model that does not fit is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.cuda.rig import live, open_rig
from tests.support.exhaustive import in_turn
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf

import camelid
from camelid.api.llm import LLM
from camelid.backends.common.results import result_bytes
from camelid.errors import DeviceLostError, OutOfMemoryError
from camelid.loading.estimate import estimate_memory
from camelid.loading.forecast import forecaster_of
from camelid.plan.memory import plan_arena
from camelid_native.cuda import backend
from camelid_native.cuda.backend import CudaBackend

SHAPE: dict[str, Any] = {"seed": 3, "n_layers": 3, "hidden": 64, "head_dim": 32, "ffn": 96, "context": 2048}
WAY = re.compile(r"(gpu_layers|kv_type|context|backend)=(\d+|'[a-z0-9_]+')")
OPTIONS: dict[str, Any] = {"backend": "cuda", "context": 512, "parallel": 2}


@pytest.fixture(autouse=True)
def rig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `cuda` name the rig."""
    monkeypatch.setattr(backend, "open_backend", open_rig)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A llama, one with experts and windows, one with recurrent layers."""
    folder = tmp_path_factory.mktemp("models")
    write_tiny_llama(folder / "llama.gguf", **SHAPE)
    cases = {
        name: str(write_hf(folder / name, load_case(name))) for name in ("mixtral_window", "granitemoehybrid")
    }
    return {"llama": str(folder / "llama.gguf"), **cases}


def used(llm: LLM) -> int:
    """Bytes of the stand-in's memory that are allocated."""
    device = own(llm)._opened().device
    return device.facts().memory_bytes - device.free_bytes()


def own(llm: LLM) -> CudaBackend:
    found: Any = llm._running.backend
    return found


@pytest.mark.parametrize(
    ("name", "kv_type"),
    in_turn(["llama", "mixtral_window", "granitemoehybrid"], ["two-tier", "q8_0", "f32"]),
)
def test_the_forecast_is_the_allocation(name: str, kv_type: str, models: dict[str, str]) -> None:
    with camelid.load(models[name], **{**OPTIONS, "context": 64}, kv_type=kv_type) as llm:
        want = estimate_memory(llm._running.deployment, [forecaster_of(own(llm))])[0]
        report = llm.memory()
        assert used(llm) == want.total - want.process
        assert report.weight_bytes == want.weights
        assert report.state_bytes == sum(want.states.values()) + want.page_tables
        assert report.arena_bytes == sum(want.scratch.values()) + want.steps


def forecast(model: str, **options: Any) -> int:
    """The predicted bytes of a model on the rig."""
    with camelid.load(model, **{**OPTIONS, **options}) as llm:
        found = estimate_memory(llm._running.deployment, [forecaster_of(own(llm))])[0]
    return found.total - found.process


def test_a_model_that_fits_to_the_byte_loads(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    need, before = forecast(models["llama"]), live()
    monkeypatch.setenv("EMU_MEMORY", str(need))
    with camelid.load(models["llama"], **OPTIONS) as llm:
        assert own(llm).free_memory() == 0
    monkeypatch.setenv("EMU_MEMORY", str(need - 1))
    monkeypatch.setattr(CudaBackend, "load", None)  # nothing is uploaded
    with pytest.raises(OutOfMemoryError, match=f"need {need:,} bytes .* has {need - 1:,} free") as caught:
        camelid.load(models["llama"], **OPTIONS)
    assert caught.value.facts == {"want_bytes": need, "limit_bytes": need - 1}
    assert live() == before


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3])
def test_every_way_out_fits(share: float, models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMU_MEMORY", str(int(share * forecast(models["llama"], context=2048))))
    wide = {**OPTIONS, "context": 2048}
    with pytest.raises(OutOfMemoryError) as caught:
        camelid.load(models["llama"], **wide)
    ways: list[tuple[str, str]] = WAY.findall(caught.value.message)
    assert {"gpu_layers", "backend"} <= {name for name, _ in ways}
    for name, value in ways:
        way = {name: int(value) if value.isdigit() else value.strip("'")}
        with camelid.load(models["llama"], **{**wide, **way}) as llm:
            assert ("cuda" in llm.capabilities.name) == (name != "backend")
    layers = int(dict(ways)["gpu_layers"])
    with pytest.raises(OutOfMemoryError, match=f"({layers} of|all) 3 layers.* need"):
        camelid.load(models["llama"], **wide, gpu_layers=layers + 1)


@pytest.mark.parametrize("program", ["candidates", "guided", "verify", "all_logits"])
def test_a_program_compiled_later_takes_its_forecast(program: str, models: dict[str, str]) -> None:
    with camelid.load(models["llama"], **OPTIONS) as llm:
        plan, pools = llm.plan(program), llm._running.deployment.kv_cache().sizes()
        extra, before = own(llm).forecast({program: plan}, pools).programs[program], used(llm)
        llm._runner.run(llm._running.compile(program))
        words = 4 * plan.layout.n_words + result_bytes(plan, plan.key.capacity.outputs)
        assert used(llm) - before == plan_arena(plan).n_bytes + words + extra


def test_memory_that_another_process_takes_meanwhile(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    need, before = forecast(models["llama"]), live()
    monkeypatch.setattr(CudaBackend, "free_memory", lambda self: need)
    for share in (0.1, 0.5, 0.9, 0.99):  # the failure is in weights, state and programs
        monkeypatch.setenv("EMU_MEMORY", str(int(share * need)))
        with pytest.raises(OutOfMemoryError, match=r"out of memory .* were requested"):
            camelid.load(models["llama"], **OPTIONS)
        assert live() == before


def test_answers_go_on_after_a_loss(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the device does not come back, requests end with an error; the model stays loaded."""
    words: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True}
    with camelid.load(models["llama"], **OPTIONS) as llm:
        want = llm.generate([5, 6, 7], **words).token_ids
        monkeypatch.setattr("camelid.engine.recovery.PAUSE_S", 0.0)
        monkeypatch.setenv("EMU_LOST", "1")
        with pytest.raises(DeviceLostError, match="could not be opened again"):
            llm.generate([5, 6, 7], **words)
        monkeypatch.delenv("EMU_LOST")
        assert llm.generate([5, 6, 7], **words).token_ids == want
        assert llm.counters.recoveries == 1

"""Some layers on webgpu, the others on cpu: for every split, the logits and tokens of each backend alone."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, nmse, write_hf
from tests.support.parity.adapters import need_driver

import camelid
from camelid.api.llm import LLM
from cria.graded_items import first_prompts

pytestmark = [pytest.mark.parity, pytest.mark.slow]

MAX_NMSE = 1e-6
DEVICE = "llvmpipe"
# Learned positions; windows and a tied head.
CASES = ("gpt2", "gemma3")
N_CRIA = 4  # layers
TEXTS = ("the llama and the alpaca walked over the mountain", "to the other side of the river where")
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 10}


def load(path: Path | str, gpu_layers: int | None, **options: Any) -> LLM:
    """On cpu alone for None; a participating GPU is always the expected adapter."""
    if not gpu_layers:
        return camelid.load(path, gpu_layers=gpu_layers, backend="cpu", **options)
    llm = camelid.load(path, gpu_layers=gpu_layers, adapter=need_driver(DEVICE), **options)
    assert DEVICE in llm.capabilities.device
    return llm


def logits(path: Path, ids: list[int], **how: Any) -> Any:
    with load(path, how.pop("gpu_layers"), context=len(ids), parallel=1, chunk=13, **how) as llm:
        return np.array(llm.logits(ids))


@pytest.mark.parametrize("n_cuts", share_of([1, None]))
@pytest.mark.parametrize("name", share_of(CASES))
def test_logits_equal_those_of_each_backend_alone(name: str, n_cuts: int | None, tmp_path: Path) -> None:
    """In float32, so that neither backend rounds activations. One layer on webgpu, or every number
    of layers.
    """
    case = load_case(name)
    path = write_hf(tmp_path / name, case, dtype="f32")
    (ids, *_), n_layers = case.token_ids, case.config.get("num_hidden_layers") or case.config["n_layer"]
    both = {k: logits(path, ids, gpu_layers=k) for k in (0, -1)}
    assert not np.array_equal(both[0], both[-1]), "both runs used one backend"
    for k in range(1, n_layers + 1)[:n_cuts]:
        got = logits(path, ids, gpu_layers=k)
        errors = [nmse(got, want) for want in both.values()]
        print(f"{name}, {k} of {n_layers} layers: NMSE {errors[0]:.1e} to cpu, {errors[1]:.1e} to webgpu")
        assert max(errors) <= MAX_NMSE
        assert not any(np.array_equal(got, want) for want in both.values()), "one backend ran all layers"


@cache
def prompts() -> list[str]:
    return first_prompts(0, 4)


def answers(llm: LLM) -> list[list[int]]:
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts()]
    return [llm.chat(turn, max_tokens=48, temperature=0).token_ids for turn in turns]


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    with load("cria", None) as llm:
        return answers(llm)


@pytest.mark.parametrize("gpu_layers", share_of([2, 0, 1, N_CRIA, N_CRIA + 1]))
def test_cria_answers_as_on_cpu(gpu_layers: int, wanted: list[list[int]]) -> None:
    with load("cria", gpu_layers, parallel=1, context=256) as llm:
        assert answers(llm) == wanted
        check_places(llm, gpu_layers)


def test_only_output_rows_cross_the_cut_before_the_head() -> None:
    """For all chunks of a prompt except the last, no byte; for the last, and for each later step, one row."""
    prompt = "the llama and the alpaca walked over the mountain " * 5

    def answer(gpu_layers: int | None) -> tuple[list[int], int]:
        with load("cria", gpu_layers, parallel=1, context=256, chunk=16) as llm:
            done = llm.generate(prompt, **GREEDY)
            assert done.usage.prompt_tokens > 3 * 16
            counters = llm.memory().counters
            return done.token_ids, counters.get("boundary_bytes", 0) // (4 * llm.spec.hidden_size)

    (want, _), (got, n_rows) = answer(None), answer(1)
    assert got == want and len(got) <= n_rows <= len(got) + 1


def check_places(llm: LLM, gpu_layers: int) -> None:
    """Checks each device's layers against the names of its weights and state."""
    backend: Any = llm._running.backend
    if gpu_layers in (0, N_CRIA + 1):
        assert llm.capabilities.name == ("webgpu" if gpu_layers else "cpu")
        return
    cut = N_CRIA + 1 - gpu_layers
    cpu, webgpu = backend.backends
    held = webgpu._host.memory()
    assert layers(held, "weight/blk.") == layers(held, "state/kv.") == set(range(cut, N_CRIA))
    assert layers([name for name, _ in cpu._weights._records], "blk.") == set(range(cut))
    assert [len(state.spec.layers) for state in cpu._states.values() if state.spec.name == "kv"] == [cut]
    counters, report = llm.memory().counters, llm.memory()
    assert counters["dispatches"] > 0 and counters["boundary_bytes"] > 0
    assert report.weight_bytes == counters["cpu.weight_bytes"] + counters["webgpu.weight_bytes"]
    assert report.state_bytes == counters["cpu.state_bytes"] + counters["webgpu.state_bytes"]


def layers(names: Any, prefix: str) -> set[int]:
    """The layer numbers after the prefix."""
    ends = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return {int(end.split(".")[0]) for end in ends}


def test_the_note_states_each_devices_layers() -> None:
    with load("cria", 3) as llm:
        assert llm.backend_note.startswith("2 of 4 layers and the head on webgpu (llvmpipe")
        assert ", 2 of 4 layers on cpu (" in llm.backend_note
        assert llm.backend_note.endswith(f", boundary {4 * llm.spec.hidden_size / 1000:.3g} kB a row")
        assert (llm.capabilities.name, llm.capabilities.promise) == ("cpu+webgpu", "A")
        assert llm.plan("decode").stages[1].name == "blk.2"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(path, seed=5, n_layers=3, hidden=64, head_dim=16, ffn=96, context=512)
    return path


@pytest.mark.parametrize(
    ("before", "after", "kv_type"),
    share_of([(2, None, "f32"), (None, 2, "f32"), (2, 3, "q8_0"), (2, -1, "f32"), (3, None, "q8_0")], 2),
)
def test_sessions_continue_on_another_split(
    before: int | None, after: int | None, kv_type: str, tiny: Path, tmp_path: Path
) -> None:
    """State pages have the same bytes for any split of the layers."""
    with load(tiny, before, kv_type=kv_type) as llm:
        session = llm.session("talk")
        session.options = dict(GREEDY)
        for text in TEXTS:
            session.generate(text)
        session.save(tmp_path / "s")
        wanted = session.fork().generate("so").token_ids
    with load(tiny, after, kv_type=kv_type) as llm:
        again = llm.restore(tmp_path / "s")
        assert again.note == ""
        again.save(tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == (tmp_path / "s").read_bytes()
        done = again.generate("so")
        assert done.usage.cached_tokens >= len(session.token_ids) - 1
        assert done.token_ids == wanted


def test_a_request_cancelled_in_a_step_delays_no_other(tiny: Path) -> None:
    """At any point of the step: the device continues, and other requests get their answers."""
    with load(tiny, 2) as llm:
        want = llm.generate(TEXTS[0], **GREEDY).token_ids

    async def run() -> None:
        llm = await camelid.aload(tiny, gpu_layers=2, adapter=DEVICE)
        for n_turns in range(0, 12, 2):
            doomed = asyncio.ensure_future(llm.agenerate(TEXTS[1], **GREEDY))
            for _ in range(n_turns):
                await asyncio.sleep(0)
            doomed.cancel()
            other = asyncio.ensure_future(llm.agenerate(TEXTS[0], **GREEDY))
            await asyncio.gather(doomed, return_exceptions=True)
            assert (await other).token_ids == want
        assert llm.is_idle
        await llm.aclose()

    asyncio.run(run())

"""Whole models on MLX: cria's greedy tokens, golden architectures, stress shapes at every kv_type, and
promise A in the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_promises import DRAWN, GREEDY, WILD, opened_case
from tests.mlx.decoding import CRIA
from tests.parity.test_cria import ALL, FEW, PARALLEL, SEED, answer, mismatches, staged_answers, wanted
from tests.support import promise_runs
from tests.support.exhaustive import every, exhaustive, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import HfCase, load_case, load_cases, nmse, write_hf
from tests.support.model import stress_encoder, stress_runs
from tests.support.model.kv_models import MODELS
from tests.support.model.runs import cuts
from tests.support.model.stress import bert, t5
from tests.support.model.stress.shapes import SHAPES
from tests.support.parity.arch_runs import check_logits
from tests.support.promise_runs import SITUATIONS, Case, alone

import camelid
from camelid.backends.reference.backend import ReferenceBackend
from camelid.model.kv_types import KV_TYPES
from camelid_native.mlx.backend import MlxBackend, open_backend
from cria.graded_items import first_prompts

pytestmark = [pytest.mark.parity, pytest.mark.slow]

SPLIT = 3  # prompts of a model in parts
COMPANY = ("among 8 others", "run ahead")
# NMSE of logits. A stored value next to a rounding tie of its kv_type may go to either side.
MAX_NMSE = {"f32": 1e-10, "f16": 1e-6, "q8_0": 1e-5, "q4_0": 1e-3, "two-tier": 1e-5, "two-tier-q4_0": 1e-3}


async def answers(prompts: Sequence[str], **options: Any) -> list[list[int]]:
    """cria's answers to all prompts at once."""
    async with await camelid.aload(str(CRIA), backend="mlx", parallel=PARALLEL, **options) as llm:
        assert "MLX" in llm.capabilities.device
        return list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))


@pytest.mark.parametrize("n_prompts", share_of([FEW, ALL]))
def test_tokens_of_cria_equal_the_reference(n_prompts: int) -> None:
    prompts, want = first_prompts(SEED, n_prompts), wanted(CRIA, n_prompts)
    assert mismatches(CRIA, prompts, asyncio.run(answers(prompts)), want) == []


@pytest.mark.parametrize("layers", share_of([3, 1, 2, 4]))
def test_tokens_of_cria_split_with_cpu_equal_the_reference(layers: int) -> None:
    prompts, want = first_prompts(SEED, SPLIT), wanted(CRIA, SPLIT)
    assert mismatches(CRIA, prompts, asyncio.run(answers(prompts, gpu_layers=layers)), want) == []


def test_stages_on_two_threads_of_mlx_run_at_once() -> None:
    """Two steps in flight, one on each backend, and the reference's tokens."""
    prompts, want = first_prompts(SEED, SPLIT), wanted(CRIA, SPLIT)
    assert mismatches(CRIA, prompts, asyncio.run(staged_answers(CRIA, open_backend, prompts)), want) == []


@pytest.mark.parametrize("case", every(8, load_cases()), ids=str)
def test_logits_of_architectures_equal_the_reference(case: HfCase, tmp_path: Path) -> None:
    check_logits(open_backend, case, "", tmp_path, fused=frozenset())


@pytest.mark.parametrize("case", every(16, load_cases()), ids=str)
def test_logits_of_bf16_weights_are_exact(
    case: HfCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations are not rounded, so bf16 has the bound of float32."""
    monkeypatch.setitem(check_logits.__globals__["MAX_NMSE"], "bf16", 1e-10)
    check_logits(open_backend, case, "", tmp_path, "bf16", fused=frozenset())


@pytest.fixture
def on_mlx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the runs of stress shapes name MLX."""
    made: list[MlxBackend] = []

    def make() -> MlxBackend:
        made.append(open_backend())
        return made[-1]

    for module in (stress_runs, stress_encoder):
        monkeypatch.setattr(module, "ReferenceBackend", make)
    yield
    assert made
    for backend in made:
        asyncio.run(backend.close())


def expected(run: Any) -> Any:
    """The result of a run on the reference."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (stress_runs, stress_encoder):
            patch.setattr(module, "ReferenceBackend", ReferenceBackend)
        return run()


@pytest.mark.parametrize("chunk", [100, 5])
@pytest.mark.parametrize("name", SHAPES)
def test_logits_of_stress_shapes_equal_the_reference(name: str, chunk: int, on_mlx: None) -> None:
    shape = SHAPES[name]
    ids = [shape.token_ids, shape.token_ids[3:9]]

    def run() -> Any:
        return stress_runs.run(shape.model(), ids, cuts(chunk, *map(len, ids)), drop=True)

    assert nmse(run(), expected(run)) <= MAX_NMSE["f32"]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_logits_at_every_kv_type_equal_the_reference(name: str, kv_type: str, on_mlx: None) -> None:
    ids = [(7 * i * i + 3 * i) % 48 for i in range(400 if "tier" in kv_type else 60)]

    def run() -> Any:
        return stress_runs.run(MODELS[name], [ids], cuts(97, len(ids)), kv_type=kv_type)

    assert nmse(run(), expected(run)) <= MAX_NMSE[kv_type]


def test_encoders_equal_the_reference(on_mlx: None) -> None:
    requests = [([3, 5, 7, 9, 11], [(i, i % 2) for i in range(5)]), ([2, 4, 6], [(i, 1) for i in range(3)])]
    model = stress_runs.make_model(bert.SPEC, bert.WEIGHTS)

    def embedded() -> Any:
        return stress_encoder.embed(model, requests, each_row=True)

    def decoded() -> Any:
        return stress_encoder.decode(t5.model(), t5.PAIRS, cuts(4, *(len(ids) for _, ids in t5.PAIRS)))

    for run in (embedded, decoded):
        assert nmse(run(), expected(run)) <= MAX_NMSE["f32"]


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """Models with paged groups, with windows, and with slots, on MLX."""
    backends: Any = promise_runs.BACKENDS
    monkeypatch.setitem(backends, "mlx", open_backend)
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    qwen: Any = {"model": SHAPES["qwen3next"].model(), "context": 64, "n_prompt": 30, "n_tokens": 14}
    return {
        "llama": opened_case(tmp_path / "tiny.gguf", backend="mlx"),
        "window": opened_case(write_hf(tmp_path / "gemma3", load_case("gemma3")), backend="mlx"),
        "recurrent": Case(backend="mlx", **qwen),
    }


@pytest.mark.parametrize(
    ("name", "sampling"),
    [("llama", GREEDY), ("llama", DRAWN), ("recurrent", WILD), exhaustive(("window", WILD))],
)
@pytest.mark.parametrize("situation", COMPANY)
def test_company_changes_no_bit(situation: str, name: str, sampling: Any, cases: dict[str, Case]) -> None:
    case = replace(cases[name], sampling=sampling)
    assert asyncio.run(SITUATIONS[situation](case)) == asyncio.run(alone(case))

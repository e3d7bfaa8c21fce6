"""Promise A: other requests in a batch change no bit of an answer. Promise B: nor do chunks, the prefix
cache, preemption, forks or speculation. Token ids and logprobs are compared bit by bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.model.stress.shapes import SHAPES
from tests.support.parity.adapters import need_driver
from tests.support.promise_runs import SITUATIONS, Bits, Case, alone

from camelid.loading.model_file import open_model

GREEDY = {"temperature": 0.0}
DRAWN = {"temperature": 1.2}
WILD = {"temperature": 6.0, "top_p": 1.0, "min_p": 0.0}  # for models with peaked distributions
# One per path of sampling: the device samples, applies penalties, or returns candidates to the host.
SAMPLINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": GREEDY,
    "drawn": DRAWN,
    "penalised": {**DRAWN, "repeat_penalty": 3.0, "frequency_penalty": 1.0},
    "hosted": {**DRAWN, "typical_p": 0.95},
}
# If the host samples, each row waits for the previous one: no run-ahead, no drafts.
NEEDS_DEVICE_DRAWS = {("hosted", "run ahead"), ("hosted", "speculated")}
TWO_TIER = ("two-tier", "two-tier-q4_0")
KV_TYPES = ("f16", "q8_0", "q4_0", *TWO_TIER)
FEW_CHUNKS = [name for name in SITUATIONS if name not in ("chunks of 2", "chunks of 16", "chunks of 512")]
BOTH = ("cpu", "reference")  # both promise A and B
# On webgpu, prompt rows and decode rows use different kernels: only promise A holds to the bit.
COMPANY = ("among 8 others", "run ahead")
SCHEDULES = share_of(["chunks of 7", "prefix found", "preempted", "forked", "speculated"], 2)


def opened_case(path: Path, **more: Any) -> Case:
    file = asyncio.run(open_model(str(path)))
    return Case(model=file.model, sources=file.sources, **more)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Models with paged groups, with paged and window groups, with paged and recurrent groups."""
    place = tmp_path_factory.mktemp("models")
    write_tiny_llama(place / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    return {
        "llama": opened_case(place / "tiny.gguf"),
        "window": opened_case(write_hf(place / "gemma3", load_case("gemma3"))),
        "recurrent": Case(model=SHAPES["qwen3next"].model(), context=64, n_prompt=30, n_tokens=14),
        "long": opened_case(place / "tiny.gguf", context=400, n_prompt=350, n_tokens=12),
    }


class Answers:
    """The answer of each case alone, computed once."""

    def __init__(self) -> None:
        self._found: dict[str, Bits] = {}

    def alone(self, name: str, case: Case) -> Bits:
        if name not in self._found:
            self._found[name] = asyncio.run(alone(case))
            assert len({token_id for token_id, _ in self._found[name]}) > 4, "too few distinct tokens"
        return self._found[name]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


def as_bits(bits: Bits) -> list[tuple[int, int]]:
    """Token ids, and logprobs as the bits of a double."""
    return [(token_id, int(np.float64(logprob).view(np.uint64))) for token_id, logprob in bits]


def holds(case: Case, name: str, situation: str, answers: Answers) -> None:
    want = answers.alone(name, case)
    got = asyncio.run(SITUATIONS[situation](replace(case, answer=tuple(i for i, _ in want))))
    assert as_bits(got) == as_bits(want)


@pytest.mark.parametrize(
    ("sampling", "situation"),
    [(s, how) for s in SAMPLINGS for how in SITUATIONS if (s, how) not in NEEDS_DEVICE_DRAWS],
)
@pytest.mark.parametrize("backend", share_of(BOTH))
def test_both_promises_are_kept(
    cases: dict[str, Case], answers: Answers, backend: str, sampling: str, situation: str
) -> None:
    case = replace(cases["llama"], backend=backend, sampling=SAMPLINGS[sampling])
    holds(case, f"{backend} {sampling}", situation, answers)


@pytest.mark.parametrize("situation", FEW_CHUNKS)
@pytest.mark.parametrize("model", ["window", "recurrent"])
@pytest.mark.parametrize("backend", share_of(BOTH))
def test_other_groups_of_state_keep_both_promises(
    cases: dict[str, Case],
    answers: Answers,
    backend: str,
    model: str,
    situation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("camelid.engine.kv_cache.FIRST_PAGES", 1)  # the prompts have two pages
    holds(replace(cases[model], backend=backend, sampling=WILD), f"{backend} {model}", situation, answers)


@pytest.mark.parametrize("situation", FEW_CHUNKS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("backend", share_of(BOTH))
def test_every_kv_type_keeps_both_promises(
    cases: dict[str, Case], answers: Answers, backend: str, kv_type: str, situation: str
) -> None:
    """With two tiers, long enough that old rows are read from the store."""
    model = "long" if kv_type in TWO_TIER else "llama"
    case = replace(cases[model], backend=backend, sampling=DRAWN, kv_type=kv_type)
    holds(case, f"{backend} {kv_type}", situation, answers)


@pytest.mark.parametrize("context", [128, 40])
def test_host_and_device_draw_equal_tokens(cases: dict[str, Case], context: int) -> None:
    """Zero biases in excess of the device's limit; in the smaller context also after shifts."""
    device = replace(
        cases["llama"], context=context, n_prompt=30, n_tokens=40, sampling=DRAWN, overflow="shift"
    )
    host = replace(device, sampling={**DRAWN, "logit_bias": tuple((i, 0.0) for i in range(17))})
    drawn, hosted = (asyncio.run(alone(case)) for case in (device, host))
    assert [token_id for token_id, _ in hosted] == [token_id for token_id, _ in drawn]
    assert len(drawn) == 40


@pytest.mark.parity
@pytest.mark.parametrize("situation", COMPANY)
@pytest.mark.parametrize(
    ("model", "kv_type"), share_of([("llama", "q8_0"), ("recurrent", "f32"), ("llama", "f32")])
)
def test_a_batch_changes_no_bit_on_webgpu(
    cases: dict[str, Case], answers: Answers, model: str, kv_type: str, situation: str
) -> None:
    sampling = WILD if model == "recurrent" else DRAWN
    adapter = need_driver("llvmpipe")
    case = replace(cases[model], sampling=sampling, backend="webgpu", adapter=adapter, kv_type=kv_type)
    holds(case, f"webgpu {model} {kv_type}", situation, answers)


@pytest.mark.parity
@pytest.mark.parametrize("situation", SCHEDULES)
def test_schedule_changes_little_on_webgpu(cases: dict[str, Case], answers: Answers, situation: str) -> None:
    """Promise B within rounding: the same greedy tokens, logprobs equal to five digits."""
    case = replace(cases["llama"], sampling=GREEDY, backend="webgpu", adapter=need_driver("llvmpipe"))
    want = answers.alone("webgpu greedy", case)
    got = asyncio.run(SITUATIONS[situation](replace(case, answer=tuple(i for i, _ in want))))
    assert [token_id for token_id, _ in got] == [token_id for token_id, _ in want]
    assert [p for _, p in got] == pytest.approx([p for _, p in want], abs=1e-5)

"""A model in stages keeps its devices' common promises in every engine situation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.parity.adapters import need_driver
from tests.support.promise_runs import BACKENDS, SITUATIONS, Bits, Case, alone

from camelid.loading.model_file import open_model

GREEDY = {"temperature": 0.0}
PENALISED = {"temperature": 1.2, "repeat_penalty": 3.0, "frequency_penalty": 1.0}
HOSTED = {"temperature": 1.2, "typical_p": 0.95}  # the host samples from the last stage's candidates
WILD = {"temperature": 6.0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 2.0}
ONE_AT_A_TIME = [name for name in SITUATIONS if name not in ("run ahead", "chunks of 2", "chunks of 512")]
Answers = dict[str, Bits]


def opened_case(path: Path, **more: Any) -> Case:
    file = asyncio.run(open_model(str(path)))
    return Case(model=file.model, sources=file.sources, **more)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Case]:
    place = tmp_path_factory.mktemp("models")
    sizes: dict[str, Any] = {"hidden": 64, "head_dim": 16, "ffn": 96, "context": 512}
    write_tiny_llama(place / "tiny.gguf", seed=3, n_layers=3, **sizes)
    window = write_hf(place / "gemma3", load_case("gemma3"))
    return {
        "llama": opened_case(place / "tiny.gguf", sampling=PENALISED),
        "window": opened_case(window, sampling=WILD),
    }


@pytest.fixture(scope="module")
def answers() -> Answers:
    return {}


def known(answers: Answers, case: Case) -> Bits:
    """The answer of the case alone, computed once."""
    key = f"{case.backend} {case.cuts} {len(case.model.spec.layers)} {case.sampling} {case.kv_type}"
    if key not in answers:
        answers[key] = asyncio.run(alone(case))
        assert len({token_id for token_id, _ in answers[key]}) > 4, "too few distinct tokens"
    return answers[key]


def as_bits(bits: Bits) -> list[tuple[int, int]]:
    return [(token_id, int(np.float64(logprob).view(np.uint64))) for token_id, logprob in bits]


@pytest.mark.parametrize("situation", ONE_AT_A_TIME)
@pytest.mark.parametrize(("model", "cuts"), [("llama", (1, 2)), ("llama", (3,)), ("window", (2,))])
def test_stages_on_cpu_equal_cpu(
    cases: Mapping[str, Case], answers: Answers, model: str, cuts: tuple[int, ...], situation: str
) -> None:
    """Both promises to the bit, and bits equal to those of one stage; penalties cover every id."""
    whole = replace(cases[model], backend="cpu")
    want = known(answers, whole)
    staged = replace(whole, backend="+".join(["cpu"] * (len(cuts) + 1)), cuts=cuts)
    got = asyncio.run(SITUATIONS[situation](replace(staged, answer=tuple(i for i, _ in want))))
    assert as_bits(got) == as_bits(want)


@pytest.mark.parametrize("situation", ONE_AT_A_TIME)
@pytest.mark.parametrize(("model", "cuts"), share_of([("llama", (1, 2)), ("window", (2,))]))
def test_stages_of_other_processes_equal_cpu(
    cases: Mapping[str, Case],
    answers: Answers,
    model: str,
    cuts: tuple[int, ...],
    situation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a step under way in each, among them several chunks of one prompt."""
    pytest.importorskip("zmq", reason="needs pyzmq: pip install 'camelid[ray]'")
    from tests.support.stages import named, stages

    whole = replace(cases[model], backend="cpu")
    want = known(answers, whole)
    staged = replace(whole, backend="+".join(["stage"] * (len(cuts) + 1)), cuts=cuts)
    with stages([named("cpu")] * (len(cuts) + 1)) as parts:
        monkeypatch.setitem(cast("dict[str, Any]", BACKENDS), "stage", iter(parts).__next__)
        got = asyncio.run(SITUATIONS[situation](replace(staged, answer=tuple(i for i, _ in want))))
    assert as_bits(got) == as_bits(want)


def mixed(case: Case, **more: Any) -> Case:
    return replace(case, backend="cpu+webgpu", adapter=need_driver("llvmpipe"), cuts=(2,), **more)


@pytest.mark.parity
@pytest.mark.parametrize("kv_type", share_of(["q8_0", "f32"]))
def test_a_batch_changes_no_bit(cases: Mapping[str, Case], answers: Answers, kv_type: str) -> None:
    case = mixed(cases["llama"], kv_type=kv_type)
    got = asyncio.run(SITUATIONS["among 8 others"](case))
    assert as_bits(got) == as_bits(known(answers, case))


@pytest.mark.parity
@pytest.mark.parametrize(
    "situation", share_of(["prefix found", "preempted", "chunks of 7", "forked", "speculated"], 2)
)
def test_schedule_changes_little(cases: Mapping[str, Case], answers: Answers, situation: str) -> None:
    """The same tokens, logprobs equal to five digits. Penalties include the prompt."""
    case = mixed(cases["llama"], sampling={**PENALISED, "temperature": 0.0})
    want = known(answers, case)
    got = asyncio.run(SITUATIONS[situation](replace(case, answer=tuple(i for i, _ in want))))
    assert [token_id for token_id, _ in got] == [token_id for token_id, _ in want]
    assert [p for _, p in got] == pytest.approx([p for _, p in want], abs=1e-5)


@pytest.mark.parity
@pytest.mark.parametrize("sampling", [GREEDY, PENALISED, HOSTED], ids=["greedy", "penalised", "hosted"])
def test_tokens_equal_those_of_cpu_alone(
    cases: Mapping[str, Case], answers: Answers, sampling: dict[str, float]
) -> None:
    want = known(answers, replace(cases["llama"], backend="cpu", sampling=sampling))
    got = known(answers, mixed(cases["llama"], sampling=sampling))
    assert [token_id for token_id, _ in got] == [token_id for token_id, _ in want]

"""Sampling through LLM: every chain draws by its definition, on a device or the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.samplers_oracle import Case, drawn, softmax

import camelid
from camelid.api.llm import LLM
from camelid.sampling.params import SamplingParams

PROMPT = [5, 300, 7, 260, 90, 12, 44, 280, 7, 260, 90]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96)
    with camelid.load(place, backend="reference", context=128) as loaded:
        yield loaded


def last_logits(llm: LLM, token_ids: list[int]) -> Any:
    return np.asarray(llm.logits(token_ids))[-1].astype(np.float64)


def defined(llm: LLM, options: dict[str, Any], n: int) -> list[int]:
    """The expected answer, from the model's logits after the tokens so far. Without Mirostat."""
    params, history = SamplingParams.from_options(options), list(PROMPT)
    texts = [llm.tokenizer.token_bytes(i) for i in range(llm.spec.vocab_size)]
    for _ in range(n):
        logits = last_logits(llm, history)
        history.append(drawn(Case(logits, params, history, position=len(history), texts=texts)))
    return history[len(PROMPT) :]


ON_DEVICE: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 1.4, "top_k": 9, "repeat_penalty": 1.3, "repeat_last_n": 9, "frequency_penalty": 0.2},
    {"temperature": 0, "repeat_penalty": 2.0},
    {"logit_bias": {7: 4.5, 32: False}, "min_p": 0.2},
]
ON_HOST: list[dict[str, Any]] = [
    {"temperature": 1.4, "order": "temperature-first"},
    {"temperature": 2.0, "order": ["top_p", "temperature", "top_k"]},
    {"typical_p": 0.6},
    {"top_n_sigma": 1.2},
    {"xtc_probability": 0.6, "xtc_threshold": 0.02},
    {"dynatemp_range": 0.7},
    {"temperature": 0, "dry_multiplier": 4.0, "dry_allowed_length": 1},
    {"temperature": 0, "dry_multiplier": 4.0, "repeat_penalty": 1.5, "repeat_last_n": -1},
    {"min_keep": 5, "top_p": 0.1},
    {"logit_bias": dict.fromkeys(range(40, 80), 3.0)},
    {"top_k": 0, "top_p": 0.99, "temperature": 5.0},
    {"top_k": 300, "temperature": 3.0},
]


@pytest.mark.parametrize("options", ON_DEVICE + ON_HOST, ids=",".join)
def test_an_answer_equals_the_definitions(llm: LLM, options: dict[str, Any]) -> None:
    before, asked = llm.counters.hosted_rows, {"seed": 2**33 + 1, **options}
    found = llm.generate(PROMPT, max_tokens=9, ignore_eos=True, **asked).token_ids
    assert found == defined(llm, asked, 9)
    assert (llm.counters.hosted_rows > before) == (options in ON_HOST)
    assert llm.is_idle


def test_rows_with_too_few_candidates_run_again(llm: LLM) -> None:
    before = llm.counters.full_logits_rows
    llm.generate(
        PROMPT, max_tokens=4, seed=1, top_k=0, top_p=0.999, min_p=0.0, temperature=5.0, typical_p=0.99
    )
    assert llm.counters.full_logits_rows > before


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_is_reproducible_and_depends_on_its_target(llm: LLM, version: int) -> None:
    def answer(tau: float) -> list[int]:
        how: Any = {"mirostat": version, "mirostat_tau": tau, "seed": 4, "ignore_eos": True}
        return llm.generate(PROMPT, max_tokens=20, **how).token_ids

    assert answer(1.0) == answer(1.0) != answer(7.0)
    assert len(set(answer(7.0))) > len(set(answer(0.5)))


@pytest.mark.parametrize("more", [{}, {"typical_p": 0.9}], ids=["device", "host"])
def test_a_bias_bans_and_raises(llm: LLM, more: dict[str, Any]) -> None:
    how: Any = {"max_tokens": 20, "ignore_eos": True, "seed": 5, **more}
    plain = llm.generate(PROMPT, **how).token_ids
    banned = llm.generate(PROMPT, logit_bias=dict.fromkeys(set(plain[:9]), False), **how).token_ids
    assert not set(plain[:9]) & set(banned)
    assert set(llm.generate(PROMPT, logit_bias={9: 100}, **how).token_ids) == {9}


@pytest.mark.parametrize("more", [{}, {"typical_p": 0.9}], ids=["device", "host"])
def test_a_stop_string_ends_the_text_before_it(llm: LLM, more: dict[str, Any]) -> None:
    how: Any = {"max_tokens": 40, "ignore_eos": True, "seed": 6, **more}
    text = llm.generate("the llama", **how).text
    stop = text[9:12]
    for stops in (stop, [stop, "\x00never"], ("\x00never", stop)):
        done = llm.generate("the llama", stop=stops, **how)
        assert done.text == text[: text.index(stop)]
        assert done.finish_reason == "stop"
    assert llm.generate("the llama", stop="\x00never", **how).text == text


@pytest.mark.parametrize("more", [{}, {"typical_p": 0.9}], ids=["device", "host"])
def test_alternatives_come_with_each_token(llm: LLM, more: dict[str, Any]) -> None:
    """Logprobs of the raw distribution, before any sampler."""
    how: Any = {"max_tokens": 3, "ignore_eos": True, "seed": 7, "repeat_penalty": 1.2, **more}
    events = list(llm.stream(PROMPT, logprobs=4, **how))
    history = list(PROMPT)
    for event in events:
        logprobs = np.log(softmax(last_logits(llm, history)))
        best = np.argsort(-logprobs, kind="stable")[:4].tolist()
        assert [i for i, _ in event.top_logprobs] == best
        assert [value for _, value in event.top_logprobs] == pytest.approx(logprobs[best].tolist(), abs=1e-5)
        assert event.logprob == pytest.approx(logprobs[event.token_id], abs=1e-5)
        history.append(event.token_id or 0)
    assert not any(event.top_logprobs for event in llm.stream(PROMPT, **how))

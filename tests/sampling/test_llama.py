"""Survivors and their logits against llama.cpp's samplers, in every order."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sampling.test_samplers import all_of

from camelid.sampling.drawing import DrawNoise
from camelid.sampling.params import DEFAULT_ORDER, ORDERS, SamplingParams
from camelid.sampling.samplers import SAMPLERS, SamplerContext

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not find_spec("llama_cpp"), reason="no llama.cpp wheel: `make rivals`"),
]
VOCAB_SIZE = 700
# llama.cpp keeps tokens of -inf after top-n-sigma: then its typical is NaN, and its dynamic temperature
# counts them.
AFTER_SIGMA = ("typical_p", "temperature")


@dataclass
class Llama:
    """llama.cpp's samplers, and a vocabulary for DRY."""

    api: Any
    vocab: Any

    def text(self, token_id: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        size = self.api.llama_token_to_piece(self.vocab, token_id, buffer, 256, 0, True)
        return buffer.raw[:size]

    def left(self, logits: NDArray[np.float64], p: SamplingParams, history: list[int]) -> dict[int, float]:
        """Token id -> final logit."""
        api = self.api
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        replaced = p.mirostat and "mirostat" not in p.order
        for name in ("logit_bias", *(("temperature", "mirostat") if replaced else p.order)):
            api.llama_sampler_chain_add(chain, self._sampler(name, p))
        for token_id in history:
            api.llama_sampler_accept(chain, token_id)
        data = (api.llama_token_data * len(logits))(*((i, float(x), 0.0) for i, x in enumerate(logits)))
        array = api.llama_token_data_array(data, len(logits), -1, False)
        api.llama_sampler_apply(chain, ctypes.byref(array))
        items = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
        api.llama_sampler_free(chain)
        return {i: logit for i, logit in items if isfinite(logit)}

    def _sampler(self, name: str, p: SamplingParams) -> Any:
        api, keep = self.api, p.min_keep
        biases = (api.llama_logit_bias * max(len(p.logit_bias), 1))(*p.logit_bias)
        breakers = (ctypes.c_char_p * 4)(*(breaker.encode() for breaker in p.dry_sequence_breakers))
        make = {
            "logit_bias": lambda: api.llama_sampler_init_logit_bias(VOCAB_SIZE, len(p.logit_bias), biases),
            "penalties": lambda: api.llama_sampler_init_penalties(
                VOCAB_SIZE, p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty
            ),
            "dry": lambda: api.llama_sampler_init_dry(
                *(self.vocab, p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_penalty_last_n),
                *(breakers, len(p.dry_sequence_breakers)),
            ),
            "top_n_sigma": lambda: api.llama_sampler_init_top_n_sigma(p.top_n_sigma),
            "top_k": lambda: api.llama_sampler_init_top_k(p.top_k),
            "typical_p": lambda: api.llama_sampler_init_typical(p.typical_p, keep),
            "top_p": lambda: api.llama_sampler_init_top_p(p.top_p, keep),
            "min_p": lambda: api.llama_sampler_init_min_p(p.min_p, keep),
            "xtc": lambda: api.llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, keep, 1),
            "temperature": lambda: api.llama_sampler_init_temp_ext(
                p.temperature, p.dynatemp_range, p.dynatemp_exponent
            ),
            "mirostat": lambda: self._mirostat(p),
        }  # fmt: skip
        return make[name]()

    def _mirostat(self, p: SamplingParams) -> Any:
        if p.mirostat == 1:
            return self.api.llama_sampler_init_mirostat(VOCAB_SIZE, 1, p.mirostat_tau, p.mirostat_eta, 100)
        return self.api.llama_sampler_init_mirostat_v2(1, p.mirostat_tau, p.mirostat_eta)


@pytest.fixture(scope="module")
def llama(shared: Path) -> Iterator[Llama]:
    api: Any = import_module("llama_cpp")
    silent = api.llama_log_callback(lambda *_: None)
    api.llama_log_set(silent, ctypes.c_void_p(0))
    params = api.llama_model_default_params()
    params.vocab_only = True
    model = api.llama_model_load_from_file(str(shared / "data/vocab/gpt-2.gguf").encode(), params)
    yield Llama(api, api.llama_model_get_vocab(model))
    api.llama_model_free(model)
    # llama.cpp would call `silent` after its deallocation.
    api.llama_log_set(ctypes.cast(0, api.llama_log_callback), ctypes.c_void_p(0))


def ours(
    llama: Llama, logits: NDArray[np.float64], p: SamplingParams, history: list[int]
) -> dict[int, float]:
    survivors = next(all_of(logits).survivors(VOCAB_SIZE, None))
    context = SamplerContext(
        params=p, noise=DrawNoise(1, 0, 0), history=history, vocab_size=VOCAB_SIZE, mu=2 * p.mirostat_tau,
        token_bytes=llama.text, breakers=[b.encode() for b in p.dry_sequence_breakers],
    )  # fmt: skip
    for name in p.chain:
        SAMPLERS[name].apply(survivors, context)
    return dict(zip(survivors.ids, survivors.logits, strict=True))


def random_params(rng: random.Random, **more: Any) -> SamplingParams:
    order = rng.choice([DEFAULT_ORDER, ORDERS["temperature-first"], rng.sample(DEFAULT_ORDER, 9)])
    order = [name for name in order if name not in ("dry", "mirostat")]
    has_sigma = rng.random() < 0.3
    if has_sigma:
        order = [name for name in order if name not in AFTER_SIGMA]
    return SamplingParams.from_options(
        {
            "order": order,
            "min_keep": rng.choice([0, 1, 4]),
            "temperature": rng.uniform(0.3, 2),
            "dynatemp_range": rng.choice([0, rng.uniform(0, 1)]),
            "dynatemp_exponent": rng.uniform(0.5, 2),
            "top_k": rng.choice([0, 3, 40]),
            "top_p": rng.choice([1, rng.uniform(0.2, 0.99)]),
            "min_p": rng.choice([0, rng.uniform(0.01, 0.3)]),
            "typical_p": rng.choice([1, rng.uniform(0.2, 0.99)]),
            "top_n_sigma": rng.uniform(0.5, 3) if has_sigma else -1,
            "xtc_probability": rng.choice([0, 1]),
            "xtc_threshold": rng.uniform(0.01, 0.3),
            "repeat_penalty": rng.choice([1, rng.uniform(0.8, 1.5)]),
            "repeat_last_n": rng.choice([0, 5, 64]),
            "frequency_penalty": rng.choice([0, rng.uniform(0, 1)]),
            "presence_penalty": rng.choice([0, rng.uniform(0, 1)]),
            "logit_bias": {rng.randrange(VOCAB_SIZE): rng.uniform(-5, 5) for _ in range(3)},
            **more,
        }
    )


def compare(llama: Llama, logits: NDArray[np.float64], p: SamplingParams, history: list[int]) -> int:
    want, found = llama.left(logits, p, history), ours(llama, logits, p, history)
    assert found.keys() == want.keys(), p
    np.testing.assert_allclose([found[i] for i in want], list(want.values()), rtol=2e-4, atol=2e-4)
    return len(want)


def test_survivors_equal_llama_cpps_in_every_order(llama: Llama) -> None:
    sizes = set[int]()
    for number in range(600):
        rng = random.Random(number)
        logits = np.random.default_rng(number).normal(0, rng.choice([1, 3]), VOCAB_SIZE).astype(np.float32)
        history = [rng.randrange(VOCAB_SIZE) for _ in range(rng.choice([0, 90]))]
        sizes.add(compare(llama, logits.astype(np.float64), random_params(rng), history))
    assert len(sizes) > 60


@pytest.mark.parametrize("version", [1, 2])
def test_mirostats_survivors_equal_llama_cpps(llama: Llama, version: int) -> None:
    sizes = set[int]()
    for number in range(80):
        rng = random.Random(number)
        logits = np.random.default_rng(number).normal(0, 3, VOCAB_SIZE).astype(np.float32)
        p = random_params(rng, mirostat=version, mirostat_tau=rng.uniform(0.5, 5), dynatemp_range=0)
        sizes.add(compare(llama, logits.astype(np.float64), p, []))
    assert len(sizes) > 20


def test_dry_penalties_equal_llama_cpps(llama: Llama) -> None:
    """With GPT-2's tokens, where a sequence breaker is a character within a token."""
    words = [25, 198, 1, 262, 286, 290, 257, 284]  # newline " the of and a to
    assert {b":", b"\n", b'"'} <= {llama.text(i) for i in words}
    lowered = 0
    for number in range(60):
        rng = random.Random(number)
        history = [
            rng.choice(words[rng.choice([0, 3, 3, 3, 3, 3]) :]) for _ in range(rng.choice([5, 40, 90]))
        ]
        p = SamplingParams.from_options(
            {"order": ["dry"], "dry_multiplier": rng.uniform(0.1, 2), "dry_base": rng.uniform(1, 3),
             "dry_allowed_length": rng.choice([1, 2, 3]), "dry_penalty_last_n": rng.choice([7, 64])}
        )  # fmt: skip
        compare(llama, np.zeros(VOCAB_SIZE), p, history)
        lowered += min(ours(llama, np.zeros(VOCAB_SIZE), p, history).values()) < 0
    assert lowered > 15

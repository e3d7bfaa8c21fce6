"""Probes on cria: the logits after a prompt, the same answers, and another request in place of the first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import exhaustive
from tests.support.parity.adapters import need_driver
from tests.support.random_adapters import random_adapter

import camelid
from camelid.api.llm import LLM, Completion
from camelid.api.streams import read
from camelid.engine.programs import PROBED
from camelid.engine.request import Request

PROMPT, OTHER = "What is 12 plus 30?", "Spell lemon."
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled on the device": {"temperature": 0.9, "top_k": 20, "seed": 3},
    "sampled on the host": {"temperature": 0.9, "typical_p": 0.8, "seed": 3},
    "with log-probabilities": {"temperature": 0, "logprobs": 3},
    "with a grammar": {"temperature": 0, "regex": "(yes|no) [a-z]+"},
    "with drafts": {"temperature": 0, "speculate": "ngram"},
}


@pytest.fixture(scope="module", params=["cpu", *map(exhaustive, ["reference", "webgpu"])])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    adapter = need_driver("llvmpipe") if request.param == "webgpu" else ""
    with camelid.load("cria", backend=request.param, adapter=adapter, context=128) as loaded:
        yield loaded


@pytest.fixture(scope="module", params=["reference", exhaustive("webgpu")])
def other_backend(request: pytest.FixtureRequest) -> Iterator[LLM]:
    adapter = need_driver("llvmpipe") if request.param == "webgpu" else ""
    with camelid.load("cria", backend=request.param, adapter=adapter, context=128) as loaded:
        yield loaded


@dataclass
class Seeing:
    """A probe that keeps what it saw, and then chooses `other`."""

    other: Request | None = None
    seen: list[np.ndarray] = field(default_factory=list)
    error: Exception | None = None

    def see(self, logits: memoryview[float]) -> None:
        self.seen.append(np.array(logits))

    async def redirected(self, request: Request) -> Request | None:
        assert request.probe is self
        if self.error:
            raise self.error
        return self.other


def made(llm: LLM, text: str, **options: Any) -> Request:
    given: dict[str, Any] = {"max_tokens": 12, **options}
    return llm.request([{"role": "user", "content": text}], **given)


async def answered(llm: LLM, request: Request) -> Completion:
    return await read(await llm.asubmit(request))


def run(llm: LLM, *requests: Request) -> list[Completion]:
    async def together() -> list[Completion]:
        return list(await asyncio.gather(*(answered(llm, request) for request in requests)))

    return llm._runner.run(together())


def test_other_backends_return_them_too(other_backend: LLM) -> None:
    probe, request = Seeing(), made(other_backend, PROMPT, temperature=0, max_tokens=2)
    want, done = run(other_backend, request, replace(request, probe=probe))
    assert done.token_ids == want.token_ids
    last = np.array(other_backend.logits(request.prompt_ids))[-1]
    assert [each.tobytes() for each in probe.seen] == [last.tobytes()]


@pytest.mark.parametrize("way", WAYS)
def test_a_probe_sees_the_logits_after_the_prompt(llm: LLM, way: str) -> None:
    """Once, also of a prompt from the prefix cache and beside another request; the answer stays the same."""
    plain = made(llm, PROMPT, **WAYS[way])
    (want,) = run(llm, plain)
    last = np.array(llm.logits(plain.prompt_ids))[-1]
    for request in (plain, replace(plain, reuses=False)):
        probe = Seeing()
        done, beside = run(llm, replace(request, probe=probe), made(llm, OTHER, temperature=0))
        assert [each.tobytes() for each in probe.seen] == [last.tobytes()]
        assert (done.token_ids, done.finish_reason) == (want.token_ids, want.finish_reason)
        assert beside.token_ids == run(llm, made(llm, OTHER, temperature=0))[0].token_ids


def test_the_other_request_answers(llm: LLM) -> None:
    other = made(llm, OTHER, temperature=0)
    (want,) = run(llm, other)
    probe = Seeing(other)
    (done,) = run(llm, replace(made(llm, PROMPT, temperature=0, max_tokens=100), probe=probe))
    assert done.token_ids == want.token_ids
    assert len(probe.seen) == 1 and llm.is_idle


def test_a_probe_that_fails_ends_its_request(llm: LLM) -> None:
    probe = Seeing(error=ValueError("planted"))
    with pytest.raises(ValueError, match="planted"):
        run(llm, replace(made(llm, PROMPT), probe=probe))
    assert llm.is_idle


def test_a_prompt_may_end_beside_rows_with_an_adapter(llm: LLM) -> None:
    """Whether the adapter is loaded after the first probe or before it."""
    llm.load_adapter(random_adapter(llm, 1), name="own")
    plain, adapted = made(llm, PROMPT, temperature=0), made(llm, OTHER, temperature=0, adapter="own")
    want = [done.token_ids for done in run(llm, plain, adapted)]
    last = np.array(llm.logits(plain.prompt_ids))[-1]
    probe = Seeing()
    found = run(llm, replace(plain, probe=probe, reuses=False), replace(adapted, reuses=False))
    assert [done.token_ids for done in found] == want
    assert [each.tobytes() for each in probe.seen] == [last.tobytes()]
    assert PROBED in llm._engine.programs
    llm.unload_adapter("own")

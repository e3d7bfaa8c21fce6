"""Models with recurrent state in the engine: batches, several steps in flight, reused allocations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.engine_fakes import GREEDY, collect
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_runs import CONTEXT, run

from camelid.backends.base import Capabilities
from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.programs import ProgramTable
from camelid.engine.request import Request
from camelid.engine.scheduler import DECODE, MIXED, Limits, program_key
from camelid.model.arch import Model
from camelid.model.decoder import declare_states, lower
from camelid.plan.plan import PAGE_ROWS

LIMITS = Limits(chunk=7, parallel=2)
PROMPTS = [[5, 9, 30, 2, 77, 41, 8, 16, 3, 50, 61], [12], [40, 1, 90, 22, 7], [3, 3, 8, 55, 60, 14, 2, 31]]
N_TOKENS = 9


class AheadReference(ReferenceBackend):
    """The reference, computing in `run`, so that further steps may be submitted before one is read."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), max_in_flight=2)


async def answers(model: Model) -> list[list[int]]:
    """Greedy answers to all prompts at once, with fewer allocations than prompts."""
    backend = AheadReference()
    plans = {entry: lower(model, program_key(entry, LIMITS, PAGE_ROWS)) for entry in (DECODE, MIXED)}
    state = KVCacheManager(declare_states(model.spec), context=CONTEXT, n_sequences=LIMITS.parallel)
    await backend.load(list(plans[MIXED].weights().values()), {})
    await backend.allocate(state.states, state.sizes())
    programs = ProgramTable()
    for entry, plan in plans.items():
        programs.add(entry, [await backend.compile(plan)])
    engine = StepEngine(backend, programs, state, limits=LIMITS, vocab_size=model.spec.vocab_size)
    requests = [Request(prompt_ids=tuple(p), sampling=GREEDY, max_tokens=N_TOKENS) for p in PROMPTS]
    streams = [engine.submit(request) for request in requests]
    found = [await collect(stream) for stream in streams]
    assert engine.is_idle, "slots were not freed"
    return found


def greedy(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    """The argmax of one full forward pass over prompt and answer."""
    ids = [*prompt, *answer]
    (logits,) = run(model, [ids], [(len(ids),)])
    return logits[len(prompt) - 1 : -1].argmax(axis=1).tolist()


@pytest.mark.parametrize("name", ["mamba2", "qwen3next"])
def test_answers_equal_one_full_forward_pass(name: str) -> None:
    model = SHAPES[name].model()
    found = asyncio.run(answers(model))
    assert [len(answer) for answer in found] == [N_TOKENS] * len(PROMPTS)
    for prompt, answer in zip(PROMPTS, found, strict=True):
        assert answer == greedy(model, prompt, answer)

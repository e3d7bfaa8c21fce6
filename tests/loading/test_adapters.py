"""Adapters of requests through the engine; the oracle is the model with the terms merged into its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.exhaustive import every
from tests.support.hf_models import HfCase, decoders, nmse, write_hf
from tests.support.model.file_runs import reference_logits
from tests.support.random_adapters import merged, random_adapter

import camelid
from camelid import LLM
from camelid.errors import RequestError

PROMPT = "What is 12 plus 30? Tell me about camels and llamas, please."
GREEDY = {"max_tokens": 16, "temperature": 0.0, "ignore_eos": True}
DECODERS = decoders()


@pytest.fixture(params=["reference", "cpu"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with camelid.load("cria", backend=request.param, context=256, adapter_slots=2) as loaded:
        yield loaded


@pytest.mark.parametrize("case", every(9, DECODERS), ids=str)
def test_terms_equal_merged_weights(case: HfCase, tmp_path: Path) -> None:
    """In every kind of linear map: joined, fused, of experts."""
    path = write_hf(tmp_path / case.name, case, dtype="f32")
    ids = case.token_ids[0]
    with camelid.load(path, backend="reference", context=len(ids)) as llm:
        first, second = random_adapter(llm, 1), random_adapter(llm, 2, rank=5, scale=0.5)
        for adapter in (first, second):
            llm.load_adapter(adapter)
        for scales in ({first: 1.0}, {first: 0.5, second: -1.0}):
            named = {adapter.name: scale for adapter, scale in scales.items()}
            want = reference_logits(merged(llm, scales), [ids])[0]
            error = nmse([np.asarray(llm.logits(ids, adapter=named))], [want])
            assert error <= 1e-11, error
        assert nmse([np.asarray(llm.logits(ids))], [want]) > 1e-4


def test_rows_without_adapters_keep_their_bits(llm: LLM) -> None:
    """Before and after loading, and beside requests with adapters, whose answers keep theirs too."""
    ids = llm.tokenize(PROMPT)
    base, answer = bytes(llm.logits(ids)), llm.generate(PROMPT, **GREEDY).token_ids
    for seed in (1, 2):
        llm.load_adapter(random_adapter(llm, seed))
    alone = {
        name: llm.generate(PROMPT, adapter=name, **GREEDY).token_ids for name in ("random-1", "random-2")
    }
    assert bytes(llm.logits(ids)) == base and alone["random-1"] != alone["random-2"]
    order = ["", "random-1", "random-2", "random-1", ""]
    streams = [llm.submit(PROMPT, adapter=name, **GREEDY) for name in order]
    together = [_read(llm, stream) for stream in streams]
    assert together == [alone.get(name, answer) for name in order]
    assert llm.is_idle


def test_prefixes_are_shared_by_adapter(llm: LLM) -> None:
    llm.load_adapter(random_adapter(llm, 1))
    first = llm.generate(PROMPT, adapter="random-1", **GREEDY)
    again = llm.generate(PROMPT, adapter="random-1", **GREEDY)
    assert again.token_ids == first.token_ids and again.usage.cached_tokens > 0
    other_scale = llm.generate(PROMPT, adapter={"random-1": 0.5}, **GREEDY)
    base = llm.generate(PROMPT, **GREEDY)
    assert other_scale.usage.cached_tokens == base.usage.cached_tokens == 0


def test_an_activated_adapter_acts_from_its_tokens_on(llm: LLM) -> None:
    """Rows before the last invocation are the base's, bit for bit, and share its prefix cache."""
    ids = llm.tokenize(PROMPT)
    base = np.asarray(llm.logits(ids)).copy()
    invocation = tuple(ids[18:20])
    llm.load_adapter(random_adapter(llm, 1, invocation=invocation), name="late")
    got = np.asarray(llm.logits(ids, adapter="late"))
    assert (got[:18] == base[:18]).all() and (got[18:] != base[18:]).any(axis=1).all()
    base_answer = llm.generate(list(ids), **GREEDY).token_ids
    llm.load_adapter(random_adapter(llm, 2, invocation=invocation), name="later")
    answer = llm.generate(list(ids), adapter="later", **GREEDY)
    assert answer.usage.cached_tokens == 18  # all rows of the base
    fresh = llm.generate(list(ids), adapter="later", cache_prompt=False, **GREEDY)
    again = llm.generate(list(ids), adapter="later", **GREEDY)
    assert again.usage.cached_tokens == len(ids) - 1
    assert again.token_ids == answer.token_ids == fresh.token_ids != base_answer
    with pytest.raises(RequestError, match="does not contain"):
        llm.generate("hello", adapter="late")
    with pytest.raises(RequestError, match="one step"):
        llm.generate(list(ids), adapter="late", is_atomic=True)


def test_more_adapters_than_slots_take_turns(llm: LLM) -> None:
    names = [llm.load_adapter(random_adapter(llm, seed)) for seed in range(1, 5)]
    alone = [llm.generate(PROMPT, adapter=name, **GREEDY).token_ids for name in names]
    streams = [llm.submit(PROMPT, adapter=name, **GREEDY) for name in names]
    assert [_read(llm, stream) for stream in streams] == alone
    assert llm.running.engine.adapters.n_loads >= 4 + 2 and llm.is_idle


def test_an_adapter_is_replaced_and_unloaded(llm: LLM) -> None:
    ids = llm.tokenize(PROMPT)
    llm.load_adapter(random_adapter(llm, 1), name="own")
    first = bytes(llm.logits(ids, adapter="own"))
    llm.load_adapter(random_adapter(llm, 2), name="own")
    assert bytes(llm.logits(ids, adapter="own")) != first
    llm.load_adapter(random_adapter(llm, 1), name="own")
    assert bytes(llm.logits(ids, adapter="own")) == first
    llm.unload_adapter("own")
    with pytest.raises(RequestError, match="'own' is unknown; loaded: none"):
        llm.generate(PROMPT, adapter="own")


def test_adapters_apply_to_requests_that_name_none(llm: LLM) -> None:
    ids = llm.tokenize(PROMPT)
    base = bytes(llm.logits(ids))
    llm.load_adapter(random_adapter(llm, 1), applies=True, scale=0.5)
    assert bytes(llm.logits(ids)) == bytes(llm.logits(ids, adapter={"random-1": 0.5})) != base
    assert bytes(llm.logits(ids, adapter="")) == base
    llm.running.adapters.set_scales({})
    assert bytes(llm.logits(ids)) == base


def test_choices_and_drafts_keep_their_adapter(llm: LLM) -> None:
    """Forks share the slot, and drafts are verified with the adapter."""
    llm.load_adapter(random_adapter(llm, 1))
    want = llm.generate(PROMPT, adapter="random-1", **GREEDY).token_ids
    assert llm.generate(PROMPT, adapter="random-1", speculate="ngram", **GREEDY).token_ids == want
    listed = llm.generate(PROMPT, adapter="random-1", logprobs=2, **GREEDY)
    assert listed.token_ids == want


def test_refusals_name_the_way_out(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"rank 65.*at most 64"):
        llm.load_adapter(random_adapter(llm, 1, rank=65))
    llm.load_adapter(random_adapter(llm, 1, rank=12))
    with pytest.raises(RequestError, match=r"adapter_rank=20"):
        llm.load_adapter(random_adapter(llm, 2, rank=20))
    llm.load_adapter(random_adapter(llm, 3, rank=5))
    with pytest.raises(RequestError, match=r"rank of 17 together.*adapter_rank=17"):
        llm.generate(PROMPT, adapter=["random-1", "random-3"])
    for wrong in (3, ["random-1", 3], {"random-1": "x"}, [("random-1", float("nan"))]):
        with pytest.raises(RequestError, match="adapter"):
            llm.generate(PROMPT, adapter=wrong)  # pyright: ignore[reportArgumentType] - on purpose


def _read(llm: LLM, stream: object) -> object:
    from camelid.api.streams import read

    return llm._runner.run(read(stream)).token_ids  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportArgumentType, reportAttributeAccessIssue]

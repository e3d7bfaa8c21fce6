"""Encoders, alone and before a decoder: equal to plain models written from the papers, for any batch and any
chunks of a decoder's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.model.runs import cuts
from tests.support.model.stress import bert, t5
from tests.support.model.stress.shape import Mutation
from tests.support.model.stress_encoder import decode, embed
from tests.support.model.stress_runs import make_model, with_attr
from tests.support.parity.compare import nmse

from camelid.errors import PlanError
from camelid.model.arch import Model
from camelid.model.decoder import lower
from camelid.model.relative import bucket
from camelid.model.spec import ModelSpec
from camelid.plan.step import Capacity, ProgramKey

WHOLE = [tuple(len(target) for _, target in t5.PAIRS)]


def bert_model(spec: ModelSpec = bert.SPEC) -> Model:
    return make_model(spec, bert.WEIGHTS)


def flat(arrays: list[Any]) -> Any:
    return np.concatenate([array.ravel() for array in arrays])


@pytest.fixture(scope="module")
def wants() -> dict[str, Any]:
    return {"bert": flat(bert.oracle()), "t5": flat(t5.oracle())}


@pytest.fixture(scope="module")
def logits() -> list[Any]:
    """T5's logits, all pairs in a batch, each decoder's rows in one step."""
    return decode(t5.model(), t5.PAIRS, WHOLE)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_embeddings_equal_the_plain_model(pooling: str) -> None:
    found = embed(bert_model(bert.with_encoder(pooling=pooling)), bert.REQUESTS)
    assert nmse(flat(found), flat(bert.oracle(pooling=pooling))) <= 1e-10


def test_hidden_states_equal_the_plain_model() -> None:
    found = embed(bert_model(bert.with_encoder(pooling="")), bert.REQUESTS, each_row=True)
    assert nmse(flat(found), flat(bert.oracle(pooling=""))) <= 1e-10


def within(reach: int) -> Callable[[int], Any]:
    return lambda n: np.abs(np.arange(n) - np.arange(n)[:, None]) <= reach


def test_a_window_reaches_half_to_each_side() -> None:
    layers = tuple(bert.replace(layer, window=12) for layer in bert.ENCODER.layers)
    found = embed(bert_model(bert.with_encoder(layers=layers)), bert.REQUESTS)
    assert nmse(flat(found), flat(bert.oracle(seen=within(6)))) <= 1e-10
    assert nmse(flat(found), flat(bert.oracle(seen=within(5)))) > 1e-5


def test_causal_rows_attend_to_earlier_rows_only() -> None:
    found = embed(
        bert_model(), bert.REQUESTS, edit=lambda plan: with_attr(plan, "attend_rows", mask="causal")
    )
    assert nmse(flat(found), flat(bert.oracle(seen=lambda n: np.tri(n, dtype=bool)))) <= 1e-10


@pytest.mark.parametrize("pooling", ["mean", ""])
def test_a_batch_changes_no_bit_of_an_embedding(pooling: str) -> None:
    model, each_row = bert_model(bert.with_encoder(pooling=pooling)), not pooling
    for requests in (bert.REQUESTS, bert.REQUESTS[::-1]):
        together = embed(model, requests, each_row=each_row)
        alone = [embed(model, [request], each_row=each_row)[0] for request in requests]
        assert all(np.array_equal(a, b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("mutation", bert.MUTATIONS.values(), ids=bert.MUTATIONS)
def test_each_feature_of_bert_changes_the_output(mutation: Mutation, wants: Any) -> None:
    spec = bert.replace(bert.SPEC, **mutation.spec)
    found = embed(make_model(spec, mutation.weights(bert.WEIGHTS)), bert.REQUESTS, edit=mutation.edit)
    assert nmse(flat(found), wants["bert"]) > 1e-8


def test_logits_equal_the_plain_model(logits: list[Any], wants: Any) -> None:
    assert nmse(flat(logits), wants["t5"]) <= 1e-10


def test_logits_equal_the_plain_model_with_gates_and_an_untied_head() -> None:
    found = decode(t5.model(is_gated=True), t5.PAIRS, WHOLE)
    assert nmse(flat(found), flat(t5.oracle(is_gated=True))) <= 1e-10


@pytest.mark.parametrize("chunk", [11, 1])
def test_chunks_give_identical_bits(chunk: int, logits: list[Any]) -> None:
    pair = t5.PAIRS[0]
    assert np.array_equal(decode(t5.model(), [pair], cuts(chunk, len(pair[1])))[0], logits[0])


def test_a_batch_changes_no_bit_of_logits(logits: list[Any]) -> None:
    steps = [(5, 1, 0), (1, 1, 30), (33, 0, 1), (1, 3, 0)]
    for found in (
        decode(t5.model(), t5.PAIRS, steps),
        [decode(t5.model(), [pair], [(len(pair[1]),)])[0] for pair in t5.PAIRS],
    ):
        assert all(np.array_equal(a, b) for a, b in zip(found, logits, strict=True))


@pytest.mark.parametrize("mutation", t5.MUTATIONS.values(), ids=t5.MUTATIONS)
def test_each_feature_of_t5_changes_the_logits(mutation: Mutation, wants: Any) -> None:
    found = decode(t5.model(mutation), t5.PAIRS, WHOLE, edit=mutation.edit)
    assert nmse(flat(found), wants["t5"]) > 1e-5


@pytest.mark.parametrize("more", [-1, 1])
def test_a_decoder_attends_exactly_to_its_encoders_rows(more: int, wants: Any) -> None:
    pairs = t5.PAIRS[::2]  # one row less would leave the other an empty encoder
    found = decode(t5.model(), pairs, [tuple(len(target) for _, target in pairs)], cross_rows=more)
    assert nmse(flat(found), flat(t5.oracle()[::2])) > 1e-5


@pytest.mark.parametrize(("n_buckets", "most"), [(16, 128), (32, 128), (8, 24), (16, 24), (32, 20)])
def test_buckets_equal_the_papers(n_buckets: int, most: int) -> None:
    found = [bucket(distance, n_buckets, most) for distance in range(300)]
    assert found == t5.buckets(np.arange(300), n_buckets, most).tolist()
    assert {*found[most:]} == {n_buckets - 1}


def test_an_entry_that_a_model_lacks_is_refused() -> None:
    capacity = Capacity(rows=1, sequences=1, outputs=1, updates=0)
    with pytest.raises(PlanError, match="bert has no entry 'mixed'; its entries: encode"):
        lower(bert_model(), ProgramKey(entry="mixed", capacity=capacity))

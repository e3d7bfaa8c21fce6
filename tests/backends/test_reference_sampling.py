"""The reference's sampling against its definition: sets and sorted lists, one token at a time."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Mapping, Sequence
from math import exp, fsum, inf, log
from typing import Any

import numpy as np
import pytest

from camelid.backends.common.op_runner import OpCase, OpResult, Quantized, run_case
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.reference.sampling import philox
from camelid.plan.step import StepSampling

EVERYTHING = frozenset({"all_logits", "candidates"})


def f32(value: float) -> float:
    """The value as a step stores it."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def adjusted(logits: Sequence[float], how: StepSampling, window: Sequence[int]) -> list[float]:
    scores = list(logits)
    for token_id, value in how.biases:
        if token_id < len(scores):
            scores[token_id] += f32(value)
    for token_id in {*window}:
        if token_id < len(scores):
            by = f32(how.repeat_penalty)
            scores[token_id] = scores[token_id] * by if scores[token_id] <= 0 else scores[token_id] / by
            scores[token_id] -= window.count(token_id) * f32(how.frequency_penalty)
            scores[token_id] -= f32(how.presence_penalty)
    return scores


def survivors(scores: Sequence[float], how: StepSampling) -> set[int]:
    ids = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    ids = ids[: how.top_k] if how.top_k else ids
    weights = [exp(scores[i] - scores[ids[0]]) for i in ids]
    if how.top_p < 1.0:
        enough = f32(how.top_p) * fsum(weights)
        n = next((n for n in range(1, len(ids)) if fsum(weights[:n]) >= enough), len(ids))
        ids, weights = ids[:n], weights[:n]
    return {i for i, weight in zip(ids, weights, strict=True) if weight >= f32(how.min_p)}


def defined(logits: Sequence[float], how: StepSampling, history: Mapping[int, int], position: int) -> int:
    window = [history[p] for p in range(max(0, position - how.penalty_last_n), position)]
    scores = adjusted(logits, how, window)
    if how.temperature == 0:
        return scores.index(max(scores))
    ids = sorted(survivors(scores, how))
    words = philox(how.seed, np.array(ids, np.uint64), position + how.offset, how.choice, 0)
    noise = [-log(-log(((int(word) >> 8) + 0.5) * 2.0**-24)) for word in words]
    finals = [scores[i] / f32(how.temperature) + g for i, g in zip(ids, noise, strict=True)]
    return ids[finals.index(max(finals))]


def run(case: OpCase) -> OpResult:
    return asyncio.run(run_case(ReferenceBackend(), case))


def random_case(rng: random.Random) -> OpCase:
    n_vocab, n_history = rng.choice((1, 2, 30, 300, 700)), rng.choice((1, 20, 127, 128, 200))
    step = rng.choice((1e-6, 0.25, 3.0))  # a coarse step causes ties
    values = [round(rng.gauss(0, 4) / step) * step for _ in range(n_vocab)]
    logits = np.array([values], np.float32)
    top_k = rng.choice((0, 1, 5, 40, 256))
    how = StepSampling(
        temperature=rng.choice((0.0, 0.7, 3.0)),
        seed=rng.getrandbits(64),
        choice=rng.randrange(3),
        offset=rng.choice((0, 1000)),
        top_k=top_k,
        top_p=rng.choice((1.0, 0.9, 0.3, 0.0)) if top_k else 1.0,
        min_p=rng.choice((0.0, 0.05, 0.5)),
        repeat_penalty=rng.choice((1.0, 1.4, 0.6)),
        frequency_penalty=rng.choice((0.0, 0.3, -0.2)),
        presence_penalty=rng.choice((0.0, 1.0)),
        penalty_last_n=rng.choice((0, 1, 7, 63, 64)),
        biases=tuple((rng.randrange(n_vocab + 5), rng.gauss(0, 3)) for _ in range(rng.choice((0, 3, 16)))),
    )
    history = [rng.randrange(min(n_vocab, 40) + 3) for _ in range(n_history)]
    views = {"logits": logits}
    return OpCase(
        op="sample",
        views=views,
        sampling=(how,),
        history=history,
        first_output=n_history,
        features=EVERYTHING,
    )


@pytest.mark.parametrize("seed", range(6))
def test_ids_equal_the_definitions(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        case = random_case(rng)
        logits = [float(v) for v in case.views["logits"][0]]
        [row] = run(case).rows
        history = dict(enumerate(case.history))
        assert row.token_id == defined(logits, case.sampling[0], history, case.first_output), case
        assert row.logits is not None and list(row.logits) == logits
        assert row.logit == logits[row.token_id]
        assert row.log_sum_exp == pytest.approx(log(fsum(map(exp, logits))))


def test_top_p_stops_where_the_sum_is_p_exactly() -> None:
    """The first two of four equal tokens reach half of the probability."""
    how = StepSampling(temperature=9.0, top_k=4, top_p=0.5, seed=3)
    rows = run(OpCase(op="sample", views={"logits": np.zeros((60, 4), np.float32)}, sampling=(how,))).rows
    assert {row.token_id for row in rows} == {0, 1}


@pytest.mark.parametrize("n_vocab", [1, 255, 256, 257, 900])
def test_candidates_are_the_largest_by_id(n_vocab: int) -> None:
    rng = random.Random(n_vocab)
    logits = [float(rng.randrange(-20, 20)) for _ in range(n_vocab)] + [-inf]
    views = {"logits": np.array([logits], np.float32)}
    [row] = run(OpCase(op="sample", views=views, features=EVERYTHING)).rows
    ids = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:256]
    assert row.candidates is not None
    assert list(row.candidates.ids) == ids
    assert list(row.candidates.logits) == [logits[i] for i in ids]
    mean = fsum(logits[:-1]) / n_vocab
    assert row.candidates.mean == pytest.approx(mean)
    assert row.candidates.variance == pytest.approx(fsum((x - mean) ** 2 for x in logits[:-1]) / n_vocab)


@pytest.mark.parametrize(
    ("value", "status"), [(np.nan, "nan"), (-np.nan, "nan"), (inf, "nan"), (-inf, "ok"), (0.0, "ok")]
)
def test_invalid_logits_set_the_status(value: float, status: str) -> None:
    logits = np.array([[1.0, value, -2.0]], np.float32)
    assert [row.status for row in run(OpCase(op="sample", views={"logits": logits})).rows] == [status]
    assert run(OpCase(op="sample", views={"logits": 0 * logits[:, ::2]})).rows[0].status == "zero"


def test_only_the_last_output_of_a_sequence_enters_its_ring() -> None:
    logits = np.full((3, 50), -9.0, np.float32)
    logits[range(3), [11, 12, 13]] = 5.0
    result = run(OpCase(op="sample", views={"logits": logits}, history=range(130), first_output=127))
    assert [row.token_id for row in result.rows] == [11, 12, 13]
    ring = dict.fromkeys(range(128), 0) | {p % 128: p for p in range(130)} | {129 % 128: 13}
    assert list(result.rings[0]) == [ring[i] for i in range(128)]


def embed(token_ids: Sequence[int], first: int, history: Sequence[int]) -> tuple[Any, list[int]]:
    table = np.arange(40, dtype=np.float32)[:, None] + np.zeros((1, 8), np.float32)
    weights = {"weight": Quantized("f32", table.shape, table.tobytes())}
    views = {"y": np.zeros((len(token_ids), 8), np.float32)}
    positions = range(first, first + len(token_ids))
    case = OpCase(
        op="embed", views=views, weights=weights, token_ids=token_ids, positions=positions, history=history
    )
    result = run(case)
    return result.views["y"][:, 0].tolist(), list(result.rings[0])


def test_prompt_ids_enter_the_ring_and_sampled_ids_stay() -> None:
    rows, ring = embed([31, 32, -1], 4, range(20))
    assert rows == [31, 32, 6]
    assert ring[:8] == [0, 1, 2, 3, 31, 32, 6, 7]


def test_the_ring_holds_the_last_ids_of_a_long_prompt() -> None:
    ids = [i % 40 for i in range(300)]
    rows, ring = embed(ids, 7, [])
    assert rows == ids
    assert ring == [ids[max(p for p in range(7, 307) if p % 128 == i) - 7] for i in range(128)]

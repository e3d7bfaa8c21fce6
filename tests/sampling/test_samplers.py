"""Host samplers: worked examples, an oracle over thousands of cases, and candidates against all logits."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import inf, log
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.samplers_oracle import F64, Case, drawn, surviving_logits

from camelid.backends.base import Candidates, OutputRow
from camelid.errors import RequestError
from camelid.plan.step import CANDIDATES
from camelid.sampling.drawing import DrawNoise
from camelid.sampling.host import HostSampler, NeedsAllLogits, Scores
from camelid.sampling.params import DEFAULT_ORDER, ORDERS, SamplingParams
from camelid.sampling.samplers import SAMPLERS, SamplerContext

EVERYTHING = ["penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
TEXTS = [b"a", b"b", b":", b" c", b"\n", b"x:y", b"", b"d"]


def texts(n: int) -> list[bytes]:
    return [TEXTS[i % len(TEXTS)] for i in range(n)]


def row_of(logits: F64, rng: np.random.Generator | None = None) -> OutputRow:
    """A device's output row: the largest logits, and sums with float32 precision."""
    values = logits.astype(np.float32)
    order = np.lexsort((np.arange(len(values)), -values))[:CANDIDATES].astype(np.uint32)
    finite = values[np.isfinite(values)].astype(np.float64)
    blur = 1.0 + (rng.uniform(-1e-5, 1e-5) if rng else 0.0)
    total = float(np.log(np.exp(finite - finite.max()).sum() * blur) + finite.max())
    spread = finite.var() * (1.0 + (rng.uniform(-1e-3, 1e-3) if rng else 0.0))
    found = Candidates(
        ids=memoryview(order.tobytes()).cast("I"),
        logits=memoryview(values[order].tobytes()).cast("f"),
        mean=float(finite.mean()),
        variance=float(spread),
    )
    return OutputRow(
        token_id=int(order[0]), status="ok", logit=float(values[order[0]]),
        log_sum_exp=float(np.float32(total)), candidates=found,
    )  # fmt: skip


def all_of(logits: F64) -> Scores:
    values = logits.astype(np.float32)
    finite = values[np.isfinite(values)].astype(np.float64)
    total = float(np.log(np.exp(finite - finite.max()).sum()) + finite.max())
    return Scores(total, None, memoryview(values.tobytes()).cast("f"))


def sampler_of(case: Case) -> HostSampler:
    pieces = case.texts or texts(len(case.logits))
    made = HostSampler(
        case.params, len(case.logits), choice=case.choice, token_bytes=lambda token_id: pieces[token_id]
    )
    made.mu = case.mu
    return made


def packed(mask: Any) -> bytes | None:
    return None if mask is None else np.packbits(mask, bitorder="little").tobytes()


def left(logits: list[float], history: list[int] | None = None, **options: Any) -> dict[int, float]:
    """Token id -> final logit after one chain over all logits, without a draw."""
    params = SamplingParams.from_options({**OFF, "seed": 1, **options})
    array = np.array(logits)
    case = Case(array, params, history or [], texts=texts(len(array)))
    survivors = next(all_of(array).survivors(len(array), None))
    context = SamplerContext(
        params=params, noise=DrawNoise(1, 0, 0), history=case.history, vocab_size=len(array), mu=10.0,
        token_bytes=case.texts.__getitem__, breakers=[b.encode() for b in params.dry_sequence_breakers],
    )  # fmt: skip
    for name in params.chain:
        SAMPLERS[name].apply(survivors, context)
    return dict(zip(survivors.ids, survivors.logits, strict=True))


HALVES = [log(p) for p in (0.5, 0.25, 0.125, 0.0625, 0.0625)]
NUCLEUS = [log(p) for p in (0.05, 0.4, 0.15, 0.3, 0.1)]
# Entropy of 0.5, 0.2, 0.2, 0.1 is 1.2206 nats; surprisals 0.693, 1.609, 1.609, 2.303: so 0.2 comes first, by
# distances 0.527, 0.389, 0.389, 1.082.
TYPICAL = [log(p) for p in (0.5, 0.2, 0.2, 0.1)]
EXAMPLES: list[tuple[list[float], dict[str, Any], set[int]]] = [
    (HALVES, {"top_k": 2}, {0, 1}),
    ([1.0, 3.0, 3.0, 3.0], {"top_k": 2}, {1, 2}),  # the lowest ids of equal logits
    (NUCLEUS, {"top_p": 0.69}, {1, 3}),
    (NUCLEUS, {"top_p": 0.71}, {1, 3, 2}),
    (NUCLEUS, {"top_p": 0.0}, {1}),
    ([0.0, 0.0], {"top_p": 0.5}, {0}),  # reaching p suffices; typical needs more than p
    ([0.0, 0.0], {"typical_p": 0.5}, {0, 1}),
    (NUCLEUS, {"top_p": 0.1, "min_keep": 3}, {1, 3, 2}),
    (HALVES, {"min_p": 0.24}, {0, 1, 2}),
    (HALVES, {"min_p": 1.0}, {0}),
    (HALVES, {"min_p": 1.0, "min_keep": 2}, {0, 1}),
    (TYPICAL, {"typical_p": 0.15}, {1}),
    (TYPICAL, {"typical_p": 0.3}, {1, 2}),
    (TYPICAL, {"typical_p": 0.6}, {0, 1, 2}),
    (TYPICAL, {"typical_p": 0.1, "min_keep": 3}, {0, 1, 2}),
    ([0.0, 2.0, 4.0], {"top_n_sigma": 1.0}, {2}),  # deviation 1.633
    ([0.0, 2.0, 4.0], {"top_n_sigma": 1.5}, {1, 2}),
    (HALVES, {"xtc_probability": 1.0, "xtc_threshold": 0.12}, {2, 3, 4}),
    (HALVES, {"xtc_probability": 1.0, "xtc_threshold": 0.12, "min_keep": 4}, {0, 1, 2, 3, 4}),
    (HALVES, {"xtc_probability": 1.0, "xtc_threshold": 0.4}, {0, 1, 2, 3, 4}),  # keeps a single token
    (HALVES, {"xtc_probability": 0.0, "xtc_threshold": 0.1}, {0, 1, 2, 3, 4}),
    (HALVES, {"logit_bias": {0: False, 4: -inf}}, {1, 2, 3}),
    (HALVES, {"temperature": 0.0}, {0}),
    ([3.0, 5.0, 5.0], {"temperature": 0.0}, {1}),
    # After a temperature of 0.5, probabilities are 16 : 4 : 1 : 0.25 : 0.25, the first one 0.744.
    (HALVES, {"temperature": 0.5, "top_p": 0.7}, {0, 1}),
    (HALVES, {"temperature": 0.5, "top_p": 0.7, "order": "temperature-first"}, {0}),
    (HALVES, {"order": ["xtc", "top_k"], "xtc_probability": 1, "xtc_threshold": 0.2, "top_k": 1}, {1}),
    (HALVES, {"order": ["top_k", "xtc"], "xtc_probability": 1, "xtc_threshold": 0.2, "top_k": 1}, {0}),
    (HALVES, {"order": [], "top_k": 1}, {0, 1, 2, 3, 4}),
]  # fmt: skip


@pytest.mark.parametrize(("logits", "options", "want"), EXAMPLES)
def test_survivors_of_a_worked_example(logits: list[float], options: dict[str, Any], want: set[int]) -> None:
    assert left(logits, **options).keys() == want


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"repeat_penalty": 2.0}, [1.0, -2.0, 3.0]),
        ({"repeat_penalty": 2.0, "repeat_last_n": 1}, [1.0, -1.0, 3.0]),
        ({"frequency_penalty": 0.5}, [1.0, -1.5, 3.0]),
        ({"presence_penalty": 0.5}, [1.5, -1.5, 3.0]),
        ({"presence_penalty": 0.5, "frequency_penalty": 0.25, "repeat_penalty": 2.0}, [0.0, -2.75, 3.0]),
        ({"frequency_penalty": -1.0}, [4.0, 0.0, 3.0]),
        ({"logit_bias": {0: 1.5, 2: -4}}, [3.5, -1.0, -1.0]),
        ({"temperature": 0.5}, [4.0, -2.0, 6.0]),
    ],
)
def test_logits_of_a_worked_example(options: dict[str, Any], want: list[float]) -> None:
    """History: token 1, then twice token 0."""
    found = left([2.0, -1.0, 3.0], [1, 0, 0], **options)
    assert [found[i] for i in range(3)] == pytest.approx(want)


# "a b c c b c y a b c" is llama.cpp's example: c would extend a repeat of 3 to 4, y of 2 to 3, b of 1 to 2.
A, B, C, Y, STOP = 0, 1, 3, 7, 4
STORY = [A, B, C, C, B, C, Y, A, B, C]


@pytest.mark.parametrize(
    ("history", "options", "want"),
    [
        (STORY, {}, {C: 1.75, Y: 1.0}),
        (STORY, {"dry_allowed_length": 1}, {C: 1.75**2, Y: 1.75, B: 1.0}),
        (STORY, {"dry_allowed_length": 4}, {}),
        (STORY, {"dry_multiplier": 0.5, "dry_base": 3.0}, {C: 1.5, Y: 0.5}),
        (STORY, {"dry_penalty_last_n": 6}, {Y: 1.0}),
        (STORY, {"dry_penalty_last_n": 2}, {}),
    ([A] * 500, {"dry_penalty_last_n": -1, "dry_base": 100.0}, {A: 100.0**19}),  # up to the float32 maximum
    ([], {"dry_allowed_length": 0}, {}),
        ([A, B, C, C, B, C, Y, STOP, A, B, C], {"dry_penalty_last_n": -1}, {C: 1.75, Y: 1.0}),
        ([A, B, C, C, Y, A, STOP, B, C], {}, {C: 1.0}),
        ([A, B, C, C, Y, A, STOP, B, C], {"dry_sequence_breakers": []}, {C: 1.0}),
        ([A, B, C, C, Y, STOP, A, STOP, C], {}, {}),
        ([A, B, STOP, C, A, B], {}, {}),  # a breaker is never penalized
        ([A, B, STOP, C, A, B], {"dry_sequence_breakers": ["z"]}, {STOP: 1.0}),
        ([A, B, C, C, A, B], {"dry_sequence_breakers": ["ab"]}, {}),  # the breaker spans two tokens
        ([A, B, C, C, A, B], {"dry_sequence_breakers": ["bz"]}, {C: 1.0}),
    ],
)  # fmt: skip
def test_dry_on_a_worked_example(history: list[int], options: dict[str, Any], want: dict[int, float]) -> None:
    found = left([0.0] * 8, history, **{"dry_multiplier": 1.0, **options})
    assert {i: -logit for i, logit in found.items() if logit} == pytest.approx(want)


def test_dynamic_temperature_of_a_worked_example() -> None:
    """Probabilities 0.5, 0.25, 0.125, 0.125 have an entropy of 1.75 bits of 2 possible."""
    logits = [log(p) for p in (0.5, 0.25, 0.125, 0.125)]
    found = left(logits, temperature=1.0, dynatemp_range=0.5, dynatemp_exponent=2.0)
    assert found[0] == pytest.approx(logits[0] / (0.5 + 1.0 * (1.75 / 2) ** 2), rel=1e-6)
    assert left([1.0], temperature=1.0, dynatemp_range=0.5) == {0: 1.0}
    assert left([5.0, 5.0], temperature=0.0, dynatemp_range=0.5) == pytest.approx({0: 10.0, 1: 10.0})


def random_params(rng: random.Random, order: list[str], vocab_size: int) -> SamplingParams:
    """Each option disabled or random; shares have random digits, so that no sum equals them exactly."""

    def maybe(value: Any, off: Any) -> Any:
        return value if rng.random() < 0.6 else off

    wide = rng.random() < 0.3  # no sampler bounds the survivors
    ids = rng.sample(range(vocab_size), min(4, vocab_size - 1))
    return SamplingParams.from_options(
        {
            "seed": rng.getrandbits(64),
            "order": order,
            "temperature": rng.choice([0, 1, rng.uniform(0.05, 3)]),
            "dynatemp_range": maybe(0, rng.uniform(0, 2)) if rng.random() < 0.3 else 0,
            "dynatemp_exponent": rng.uniform(0.2, 3),
            "top_k": 0 if wide else maybe(rng.choice([1, 5, 40, 200, 300]), 0),
            "top_p": maybe(rng.uniform(0.05, 0.999), 1),
            "min_p": maybe(rng.uniform(0.001, 0.6), 0),
            "typical_p": maybe(rng.uniform(0.05, 0.999), 1) if rng.random() < 0.5 else 1,
            "top_n_sigma": maybe(rng.uniform(0.1, 6), -1) if rng.random() < 0.5 else -1,
            "min_keep": rng.choice([0, 0, 1, 3]),
            "xtc_probability": maybe(rng.random(), 0) if rng.random() < 0.5 else 0,
            "xtc_threshold": rng.uniform(0.001, 0.6),
            "repeat_penalty": maybe(rng.uniform(0.8, 1.5), 1),
            "repeat_last_n": rng.choice([64, 5, -1]),
            "frequency_penalty": maybe(rng.uniform(-0.3, 1), 0),
            "presence_penalty": maybe(rng.uniform(-0.3, 1), 0),
            "dry_multiplier": maybe(rng.uniform(0.2, 3), 0),
            "dry_penalty_last_n": rng.choice([64, 9, -1]),
            "dry_allowed_length": rng.choice([0, 1, 2, 3]),
            "dry_base": rng.choice([1, 1.75]),
            "dry_sequence_breakers": rng.choice([[], ["\n", ":"], ["ab", "d"]]),
            "mirostat": rng.choice([0, 0, 0, 1, 2]),
            "logit_bias": {i: rng.choice([False, rng.uniform(-9, 9)]) for i in ids}
            if rng.random() < 0.3
            else {},
        }
    )


def random_order(rng: random.Random) -> list[str]:
    shuffled = rng.sample(EVERYTHING, rng.randrange(len(EVERYTHING) + 1))
    order = rng.choice([DEFAULT_ORDER, ORDERS["temperature-first"], shuffled, [*shuffled, "mirostat"]])
    return list(order)


def random_case(number: int, sizes: list[int]) -> Case:
    rng, arrays = random.Random(number), np.random.default_rng(number)
    n = rng.choice(sizes)
    logits = arrays.normal(0, rng.choice([0.5, 3, 8]), n) + rng.choice([0, 0, 30, -400])
    if rng.random() < 0.4:
        logits = np.round(logits, rng.choice([0, 1]))  # some are equal
    if rng.random() < 0.1:
        logits[arrays.integers(0, n, n // 3)] = -np.inf
        logits[arrays.integers(0, n)] = 1.0
    likely = np.argsort(-logits)[:40].tolist()
    history = [rng.choice([*likely, *range(min(n, 8))]) for _ in range(rng.choice([0, 3, 100]))]
    mask = None
    if rng.random() < 0.3:
        mask = arrays.random(n) < rng.choice([0.1, 0.9])
        mask[int(np.argmax(logits))] = True
    logits = logits.astype(np.float32).astype(np.float64)
    return Case(
        logits, random_params(rng, random_order(rng), n), history, position=number, choice=number % 3,
        mask=mask, mu=rng.uniform(0, 12), texts=texts(n),
    )  # fmt: skip


def outcome(case: Case, view: Scores) -> int | str:
    try:
        return sampler_of(case).draw(view, case.history, case.position, packed(case.mask))
    except RequestError as error:
        return str(error.field)


def expected(case: Case) -> int | str:
    if np.isfinite(surviving_logits(case)).any():
        return drawn(case)
    return "logit_bias"


@pytest.mark.conformance
@pytest.mark.parametrize("n_cases", share_of([900, 2500]))
def test_draws_equal_the_oracles_for_all_orders_and_options(n_cases: int) -> None:
    seen = Counter[bool]()
    for number in range(n_cases):
        case = random_case(number, [2, 3, 8, 40, 400])
        with np.errstate(all="ignore"):
            want = expected(case)
        assert outcome(case, all_of(case.logits)) == want, case.params
        seen[want == int(np.argmax(case.logits))] += 1
    assert min(seen.values()) > 3 * n_cases // 25


@pytest.mark.conformance
def test_survivors_and_their_logits_equal_the_oracles() -> None:
    for number in range(1500):
        case = random_case(10_000 + number, [3, 30, 300])
        sampler = sampler_of(case)
        with np.errstate(all="ignore"):
            want = surviving_logits(case)
        survivors = next(all_of(case.logits).survivors(len(case.logits), packed(case.mask)))
        context = sampler._context(case.history, case.position)
        for name in case.params.chain:
            if survivors.ids:
                SAMPLERS[name].apply(survivors, context)
        if case.params.is_greedy:
            del (
                survivors.ids[1:],
                survivors.logits[1:],
            )  # samplers that greedy skips leave the same first token
            want = np.where(np.arange(len(want)) == np.argmax(want), want, -np.inf)
        assert sorted(survivors.ids) == np.flatnonzero(np.isfinite(want)).tolist(), case.params
        if not case.params.is_greedy:
            np.testing.assert_allclose(survivors.logits, want[survivors.ids], rtol=1e-6, atol=1e-9)
        keys = [(-logit, i) for logit, i in zip(survivors.logits, survivors.ids, strict=True)]
        assert keys == sorted(keys), "survivors are not by falling logit, then rising id"


@pytest.mark.conformance
@pytest.mark.parametrize("n_cases", share_of([500, 1600]))
def test_candidates_give_the_token_of_all_logits_or_request_them(n_cases: int) -> None:
    """Equal tokens for any rounding of the device's sums; mostly without a request for all logits."""
    seen = Counter[str]()
    for number in range(n_cases):
        case = random_case(20_000 + number, [20, 256, 257, 600, 1500])
        want, some = outcome(case, all_of(case.logits)), row_of(case.logits, np.random.default_rng(number))
        try:
            found = outcome(case, Scores.of_row(some))
        except NeedsAllLogits:
            seen["asked"] += 1
            continue
        assert found == want, case.params
        seen["short" if len(case.logits) <= CANDIDATES else "given"] += 1
    assert seen["given"] > n_cases // 4, seen
    assert seen["asked"] > n_cases // 16, seen


def test_candidates_with_all_logits_never_request_more() -> None:
    for number in range(150):
        case = random_case(30_000 + number, [600, 5000])
        both = replace(Scores.of_row(row_of(case.logits)), logits=all_of(case.logits).logits)
        assert outcome(case, both) == outcome(case, all_of(case.logits))

"""Sampling in C: the reference's token for any chain, variant and number of threads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.support.native.kernels import VARIANTS
from tests.support.parity.cases_sampling import case, limited, sample_cases
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.reference.sampling import philox
from camelid.plan.step import StepSampling
from camelid_native.cpu.backend import open_backend

SIZES = (7, 300, 1000, 151936)
N_CHAINS = 50
CLOSE = 2e-13  # distance of a score from a limit
CASES = tuple(sample_cases())
HISTORY = [i * i % 91 for i in range(120)]


def random_rows(rng: np.random.Generator, n: int, vocab_size: int) -> Any:
    """Rows of every kind: wide, narrow, rounded (many equal), masked, rising, broken."""
    rows = (rng.standard_normal((n, vocab_size)) * rng.choice([0.01, 1.0, 4.0], (n, 1))).astype(np.float32)
    rows[1::6] = np.round(rows[1::6])
    rows[2::6][rng.random(rows[2::6].shape) < 0.9] = -np.inf
    rows[3::6].sort()
    rows[4::6] += 1000.0
    rows[11, rng.integers(vocab_size)] = np.nan
    rows[17, rng.integers(vocab_size, size=3)] = np.inf
    rows[23] = -np.inf
    return rows


def random_chain(rng: np.random.Generator, vocab_size: int) -> StepSampling:
    """Each sampler is active in about half of the chains."""

    def perhaps(value: Any, otherwise: Any) -> Any:
        return value if rng.random() < 0.5 else otherwise

    top_k = perhaps(int(rng.integers(1, 257)), 0)
    biases = tuple((int(rng.integers(vocab_size + 3)), float(rng.normal() * 4)) for _ in range(16))
    return StepSampling(
        temperature=float(rng.choice([0.0, 0.2, 1.0, 1.0, 30.0])),
        seed=int(rng.integers(2**63)),
        choice=int(rng.integers(9)),
        offset=int(rng.integers(99)),
        top_k=top_k,
        top_p=perhaps(float(rng.random()), 1.0) if top_k else 1.0,
        min_p=perhaps(float(rng.random() ** 4), 0.0),
        repeat_penalty=perhaps(1.3, 1.0),
        frequency_penalty=perhaps(0.4, 0.0),
        presence_penalty=perhaps(-0.7, 0.0),
        penalty_last_n=int(rng.integers(65)),
        biases=perhaps(biases[: rng.integers(17)], ()),
    )


@cache
def random_case(vocab_size: int) -> OpCase:
    rng = np.random.default_rng(vocab_size)
    chains = [random_chain(rng, vocab_size) for _ in range(N_CHAINS)]
    rows = random_rows(rng, N_CHAINS, vocab_size)
    return case(
        *(rows, *chains),
        history=HISTORY,
        first_output=110,
        features=frozenset({"candidates"}),
        margins=(3, 2),
        spare=2,
    )


def gumbel(seed: int, position: int) -> list[float]:
    """Noise of ids 0 and 1."""
    words = philox(seed, np.arange(2, dtype=np.uint64), position, 0, 0)
    return [-math.log(-math.log(((int(word) >> 8) + 0.5) * 2.0**-24)) for word in words]


def exact(score: float) -> tuple[float, float]:
    """A logit and a bias whose float64 sum equals the score to 48 bits."""
    logit = float(np.float32(score))
    return logit, float(np.float32(score - logit))


def border_case(scores: list[float], ways: list[StepSampling]) -> OpCase:
    """Rows of two ids: id 0 has logit 0, id 1 the score."""
    pairs = [exact(score) for score in scores]
    sampling = [
        limited(**_fields(how), biases=((1, bias),)) for how, (_, bias) in zip(ways, pairs, strict=True)
    ]
    rows = np.array([[0.0, logit] for logit, _ in pairs], np.float32)
    return case(rows, *sampling)


def _fields(how: StepSampling) -> dict[str, Any]:
    names = ("temperature", "seed", "top_k", "top_p", "min_p")
    return {name: getattr(how, name) for name in names}


def noise_border() -> OpCase:
    """Id 1 lags by its lead in noise, slightly more or slightly less."""
    ways = [StepSampling(temperature=1.0, seed=seed) for seed in range(100)]
    noise = [gumbel(seed, 1 + seed) for seed in range(100)]
    return border_case([a - b + CLOSE * (-1) ** i for i, (a, b) in enumerate(noise)], ways)


def winners(n: int) -> Iterator[tuple[int, int]]:
    """(i, seed): with this seed, the second of two equal ids wins as output i."""
    for i in range(n):
        seeds = range(1000 * i, 1000 * (i + 1))
        yield i, next(seed for seed in seeds if np.diff(gumbel(seed, 1 + i))[0] > 3.0)


def top_p_border() -> OpCase:
    """Id 0 alone is as likely as top p, slightly more or slightly less."""
    values = [float(np.float32(p)) for p in np.linspace(0.51, 0.93, 60)]
    ways = [
        StepSampling(temperature=9.0, seed=seed, top_k=2, top_p=values[i]) for i, seed in winners(len(values))
    ]
    return border_case([math.log(1 / p - 1) + CLOSE * 40 * (-1) ** i for i, p in enumerate(values)], ways)


def min_p_border() -> OpCase:
    """Id 1 is as likely as min p, slightly more or slightly less."""
    values = [float(np.float32(p)) for p in np.geomspace(1e-3, 0.9, 60)]
    ways = [StepSampling(temperature=9.0, seed=seed, min_p=values[i]) for i, seed in winners(len(values))]
    return border_case([math.log(p) + CLOSE * (-1) ** i for i, p in enumerate(values)], ways)


BORDERS = {"noise": noise_border, "top_p": top_p_border, "min_p": min_p_border}


def results(variant: str, threads: int, cases: list[OpCase]) -> list[OpResult]:
    backend = open_backend()
    return asyncio.run(run_on(backend, OpenSpec(adapter=variant, threads=threads), cases))


def token_ids(result: OpResult) -> list[int]:
    return [row.token_id for row in result.rows]


def words(result: OpResult) -> list[Any]:
    """All outputs, as bits."""
    found: list[Any] = [list(ring) for ring in result.rings]
    for row in result.rows:
        numbers = np.array([row.logit, row.log_sum_exp], np.float32).tobytes()
        found += [row.token_id, row.status, numbers, bytes(row.logits or b"")]
        if row.candidates is not None:
            moments = np.array([row.candidates.mean, row.candidates.variance], np.float32).tobytes()
            found += [bytes(row.candidates.ids), bytes(row.candidates.logits), moments]
    return found


@cache
def wanted_of_cases() -> list[OpResult]:
    return [reference_result(case) for case in CASES]


@cache
def wanted_of_chains(vocab_size: int) -> OpResult:
    return reference_result(random_case(vocab_size))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_case_draws_the_references_token(variant: str) -> None:
    """Includes rows with NaN, whose status alone the parity tests compare."""
    for got, want in zip(results(variant, 1, list(CASES)), wanted_of_cases(), strict=True):
        assert token_ids(got) == token_ids(want)
        assert max(errors(got, want)) <= TOLERANCE


@pytest.mark.parametrize("vocab_size", SIZES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_chains_draw_the_references_token(variant: str, vocab_size: int) -> None:
    want = wanted_of_chains(vocab_size)
    (got,) = results(variant, 2, [random_case(vocab_size)])
    assert token_ids(got) == token_ids(want)
    assert max(errors(got, want)) <= TOLERANCE


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_change_no_bit(variant: str, threads: int) -> None:
    cases = [random_case(300), random_case(151936), *CASES[-12:]]
    alone, shared = (results(variant, n, cases) for n in (1, threads))
    assert [words(result) for result in shared] == [words(result) for result in alone]


@pytest.mark.parametrize("border", list(BORDERS))
@pytest.mark.parametrize("variant", VARIANTS)
def test_decisions_have_float64_precision(variant: str, border: str) -> None:
    near = BORDERS[border]()
    want = token_ids(reference_result(near))
    assert {0, 1} == set(want[0::2]) | set(want[1::2])
    assert all(a != b for a, b in zip(want[0::2], want[1::2], strict=True))  # each limit lay between two rows
    assert token_ids(results(variant, 1, [near])[0]) == want

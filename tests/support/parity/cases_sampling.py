"""Cases of `sample` and `candidates`: every sampler of the device's chain, at its limits and odd sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty

from camelid.backends.common.op_runner import OpCase
from camelid.plan.step import StepSampling

ALL = frozenset({"all_logits"})
CANDIDATES = frozenset({"candidates"})
LARGE = 151936  # logits of one row
WARM = StepSampling(temperature=1.0, seed=5)


def case(logits: Any, *sampling: StepSampling, **more: Any) -> OpCase:
    return OpCase(op="sample", views={"logits": logits}, sampling=sampling or (StepSampling(),), **more)


def limited(**values: Any) -> StepSampling:
    return StepSampling(**({"temperature": 1.5, "seed": 11} | values))


def draw_cases() -> Iterator[OpCase]:
    tied = array(19, 3, 1024)
    tied[:, [3, 77, 999]] = 9.0  # the lowest id wins
    yield case(tied)
    yield case(array(20, 2, 37), features=ALL)
    ways = [StepSampling(temperature=0.7, seed=seed, choice=3) for seed in (1, 2**63 + 12345)]
    shifted = StepSampling(temperature=0.7, seed=1, choice=3, offset=77)
    yield case(array(21, 12, 1024, scale=2.0), *ways, shifted)
    tail = array(23, 1, 1024)
    tail[0, 561] = -30.0  # with seed 332 its u is 1 - 2^-25, which float32 rounds to 1
    yield case(tail, StepSampling(temperature=1.0, seed=332))
    far = np.full((1, 1024), -1e3, np.float32)
    far[0, [561, 541]] = -19.3, 0.0  # the same u, noise -2.02 for the other: it wins
    yield case(far, StepSampling(temperature=1.0, seed=332))
    yield case(empty(1, 60))
    yield case(empty(4, 600), WARM)  # equal logits: noise alone decides


def broken_cases() -> Iterator[OpCase]:
    """NaN and overflow set the row's status; -inf is never drawn while another id is allowed."""
    broken = array(22, 6, 60)
    broken[1::2, 40] = np.nan
    broken[4, 7] = np.inf
    yield case(broken, StepSampling(), limited(top_k=7, top_p=0.5), limited(min_p=0.1))
    barred = array(60, 10, 600)
    barred[::2, np.arange(600) % 97 != 5] = -np.inf  # keeps 7
    barred[1::2, :300] = -np.inf
    ways = limited(top_k=3), limited(top_k=40, top_p=0.9), limited(top_k=256)
    yield case(barred, StepSampling(), WARM, *ways, features=ALL | CANDIDATES)


LIMITS: tuple[dict[str, Any], ...] = (
    *({"top_k": k} for k in (1, 2, 40, 255, 256)),
    *({"top_k": 40, "top_p": p} for p in (0.0, 0.05, 0.5, 0.95)),
    {"top_k": 256, "top_p": 0.999},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 30, "min_p": 0.2},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    {"top_k": 40, "top_p": 0.95, "temperature": 0.0},
)


def limit_cases() -> Iterator[OpCase]:
    ways = [limited(**values) for values in LIMITS]
    yield case(array(61, 4 * len(ways), 1500, scale=2.0), *ways)
    for n in (1, 37, 255, 256, 257):  # fewer than k, and exactly k
        yield case(array(62, 2, n, scale=2.0), limited(top_k=256, top_p=0.9), features=CANDIDATES)
    halves = np.log(np.array([[0.5, 0.25, 0.125, 0.0625, 0.0625]], np.float32))
    sums = (0.49, 0.51, 0.74, 0.76, 0.9374, 0.9376)  # on either side of each sum
    ratios = (0.124, 0.126, 0.249, 0.251, 0.501)
    ways = [limited(top_k=5, top_p=p, temperature=9.0) for p in sums]
    ways += [limited(min_p=p, temperature=9.0) for p in ratios]
    yield case(np.repeat(halves, 8 * len(ways), 0), *ways)


def tie_cases() -> Iterator[OpCase]:
    ties = array(63, 8, 5000)
    ties[:, ::3] = 3.5  # equal logits at rank k: the lowest ids
    ties[4:6] = -1.25
    ties[6, ::2] = -0.0  # equals 0
    ties[6, 1::2] = 0.0
    ties[7] = array(64, 5000) * 1e-4 + 8  # differ in the last bits only
    yield case(ties, *(limited(top_k=k, temperature=4.0) for k in (3, 200)), features=CANDIDATES)


def large_cases() -> Iterator[OpCase]:
    rows = np.repeat(array(65, 1, LARGE, scale=3.0), 6, 0)
    rows[1, 60000:61500] = rows.max() + 1.0  # more equal logits than one sort holds
    rows[2] = np.linspace(-9.0, 9.0, LARGE)
    # All the largest logits in the share of few lanes, 198 above some hundred equal logits.
    few = np.flatnonzero(np.arange(LARGE) % 256 < 3)
    rows[4:, [*few[1::7], *few[4::7]]] = 30.0
    rows[4:, few[::9]] = 31.0 + array(72, len(few[::9])) ** 2
    usual = limited(top_k=40, top_p=0.95, min_p=0.05)
    yield case(rows, usual, usual, usual, WARM, usual, limited(top_k=230), features=CANDIDATES)


HISTORY = [i * i % 50 for i in range(200)]  # many ids repeat
PENALTIES: tuple[dict[str, Any], ...] = (
    {"repeat_penalty": 1.3, "penalty_last_n": 64},
    {"frequency_penalty": 0.7, "penalty_last_n": 64},
    {"presence_penalty": -0.9, "penalty_last_n": 64},
    {"repeat_penalty": 0.5, "frequency_penalty": 0.3, "presence_penalty": 0.4, "penalty_last_n": 9},
    {"repeat_penalty": 3.0, "penalty_last_n": 1},
    {"repeat_penalty": 3.0, "penalty_last_n": 0},
)


def penalty_cases() -> Iterator[OpCase]:
    ways = [limited(temperature=t, **values) for values in PENALTIES for t in (0.0, 1.0)]
    yield case(
        array(66, 4 * len(ways), 60, scale=2.0), *ways, history=HISTORY, first_output=150, features=ALL
    )
    start = array(73, 4, 60)
    start[:, 0] = 9.0  # an empty ring position holds no penalised id
    how = limited(temperature=0.0, frequency_penalty=5.0, penalty_last_n=64)
    yield case(start, how, history=[5, 6, 7], first_output=0)
    how = limited(temperature=0.0, repeat_penalty=9.0, penalty_last_n=64)
    for first, end in ((1, 128), (136, 200)):  # every window, before and after the ring wraps
        rows = np.concatenate([_rising(position) for position in range(first, end)])
        yield case(rows, how, history=range(end - 1), first_output=first)
    # Outputs whose windows begin before the ring, which holds the ids from the last output on back.
    rows = np.concatenate([_rising(position) for position in range(100, 290)])
    yield case(rows, how, history=range(289), first_output=100)


def _rising(position: int) -> Any:
    """Id i was at position i. The newest id outside a window of 64 wins, or an id without an occurrence."""
    logits = np.full((1, 300), -1000.0, np.float32)
    logits[0, :position] = np.linspace(80.0, 90.0, position)
    logits[0, 299] = 50.0
    return logits


BIASES = ((3, 2.5), (40, -np.inf), (9, -1.0), (3, 0.5), (10**6, 1.0))


def bias_cases() -> Iterator[OpCase]:
    more: tuple[dict[str, Any], ...] = ({}, {"repeat_penalty": 1.7, "penalty_last_n": 20}, {"top_k": 8})
    ways = [limited(temperature=t, biases=BIASES, **values) for values in more for t in (0.0, 1.0)]
    ways.append(limited(biases=tuple((i, 0.25 * i) for i in range(16))))
    yield case(array(67, 21, 60), *ways, history=HISTORY[:50], first_output=22, features=ALL | CANDIDATES)


def company_cases() -> Iterator[OpCase]:
    """Sequences that differ in every word; several outputs of one sequence, the last stored in the ring."""
    ways = (
        limited(top_k=5, biases=((7, 4.0), (8, 4.0))),
        limited(temperature=0.0, biases=((9, 50.0),)),
        limited(seed=2**40, choice=2, repeat_penalty=2.0, penalty_last_n=30),
        limited(min_p=0.3, frequency_penalty=0.5, penalty_last_n=5, biases=((1, -9.0),)),
        StepSampling(),
    )
    yield case(array(69, 5, 300), *ways, history=HISTORY[:140], first_output=136)
    how = limited(repeat_penalty=2.0, penalty_last_n=64, temperature=0.5)
    yield case(array(70, 6, 60), how, history=HISTORY[:75], first_output=70)


MAKERS = (
    draw_cases,
    broken_cases,
    limit_cases,
    tie_cases,
    large_cases,
    penalty_cases,
    bias_cases,
    company_cases,
)


def sample_cases() -> Iterator[OpCase]:
    for make in MAKERS:
        yield from make()

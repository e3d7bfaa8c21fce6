"""Draws on the host: Philox against published answers, noise and draws against NumPy, and mask-then-chain.

The definition: logits of tokens that the mask leaves out are -inf, the rest goes through the chain.
"""

from __future__ import annotations

import random
from collections import Counter
from math import exp, log

import numpy as np
import pytest
from numpy.typing import NDArray

from camelid.backends.reference.sampling import philox as numpy_philox
from camelid.drawing import MOST_NOISE, allowed_ids, choose, draw, noise, philox
from camelid.errors import RequestError
from camelid.plan.step import StepSampling

# Random123 1.14, kat_vectors, philox4x32 10: counter, key, first word of the answer.
KNOWN = [
    ((0, 0, 0, 0), 0, 0x6627E8D5),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, 0x408F276D),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822, 0xD16CFE09),
]


def mask_of(ids: set[int], n: int) -> bytes:
    bits = sum(1 << i for i in ids)
    return bits.to_bytes((n + 7) // 8, "little")


@pytest.mark.conformance
@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_philox_gives_the_published_words(counter: tuple[int, int, int, int], key: int, want: int) -> None:
    assert philox(key, counter) == want


class Fixed:
    """A constraint that allows the same tokens always."""

    is_finished = False

    def __init__(self, ids: set[int], n: int) -> None:
        self._ids, self._n = ids, n

    def mask(self) -> bytes:
        return mask_of(self._ids, self._n)

    def accept(self, token_id: int) -> bool:
        return token_id in self._ids


def defined(logits: NDArray[np.float64], ids: set[int], how: StepSampling, position: int) -> int:
    """The definition, in NumPy: masked logits through temperature and Gumbel noise."""
    masked = np.full(len(logits), -np.inf)
    masked[list(ids)] = logits[list(ids)]
    if how.temperature == 0:
        return int(np.argmax(masked))
    words = numpy_philox(how.seed, np.arange(len(logits), dtype=np.uint64), position, how.choice, 0)
    u = ((words >> np.uint64(8)) + 0.5) * 2.0**-24
    return int(np.argmax(masked / how.temperature - np.log(-np.log(u))))


@pytest.mark.parametrize("temperature", [0.0, 0.05, 0.8, 3.0])
def test_a_choice_is_the_one_that_the_definition_makes(temperature: float) -> None:
    rng = random.Random(1)
    kept = redrawn = 0
    for position in range(300):
        n = rng.choice([3, 8, 61, 1000])
        logits = np.round(np.random.default_rng(position).normal(0, 3, n), 1)  # so that some are equal
        ids = set(rng.sample(range(n), rng.randrange(1, n + 1)))
        how = StepSampling(temperature=temperature, seed=rng.getrandbits(64))
        drawn = defined(logits, set(range(n)), how, position)
        found = choose(drawn, list(logits), Fixed(ids, n), how, position)
        assert found == defined(logits, ids, how, position)
        kept += found == drawn
        redrawn += found != drawn
    assert kept > 30
    assert redrawn > 30


def test_noise_is_never_above_its_bound() -> None:
    """Found by search: u is as large as it can be for this word."""
    assert pytest.approx(-log(-log(((2**24 - 1) + 0.5) * 2.0**-24)), abs=1e-12) == MOST_NOISE
    how = StepSampling(temperature=1.0, seed=7)
    assert max(noise(how, i, 0) for i in range(3000)) < MOST_NOISE


def chi_squared(counts: Counter[int], chances: dict[int, float], n: int) -> float:
    return sum((counts[i] - n * p) ** 2 / (n * p) for i, p in chances.items())


@pytest.mark.conformance
@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.0])
def test_draws_follow_the_masked_distribution(temperature: float) -> None:
    """Chi squared against the definition's softmax, over 8,000 draws; 8 degrees of freedom."""
    logits = [1.0, -0.5, 2.2, 0.0, 1.4, -1.0, 0.7, 2.0, -0.2, 1.9, 0.3, -2.0, 1.1, 0.9]
    ids = {0, 1, 3, 4, 6, 8, 9, 10, 13}
    weights = {i: exp(logits[i] / temperature) for i in ids}
    chances = {i: w / sum(weights.values()) for i, w in weights.items()}
    n, counts = 8_000, Counter[int]()
    fixed, array = Fixed(ids, len(logits)), np.array(logits)
    everything = set(range(len(logits)))
    for position in range(n):
        how = StepSampling(temperature=temperature, seed=99)
        counts[choose(defined(array, everything, how, position), logits, fixed, how, position)] += 1
    assert set(counts) == ids
    assert chi_squared(counts, chances, n) < 31.8  # p = 0.0001
    assert chi_squared(counts, dict.fromkeys(ids, 1 / len(ids)), n) > 31.8, "the test can fail"


def test_equal_logits_take_the_lowest_allowed_id() -> None:
    assert draw([1.0, 5.0, 5.0, 5.0], mask_of({0, 2, 3}, 4), StepSampling(), 0) == 2


def test_a_mask_without_tokens_is_an_error() -> None:
    with pytest.raises(RequestError, match="the grammar is stuck"):
        draw([1.0, 2.0], b"\0", StepSampling(), 0)


def test_the_ids_of_a_mask_come_in_order() -> None:
    ids = {0, 7, 8, 63, 64, 71}
    assert list(allowed_ids(mask_of(ids, 77))) == sorted(ids)

"""Random numbers of draws: Philox against published vectors, noise against NumPy, and masks."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from camelid.backends.reference.sampling import philox as numpy_philox
from camelid.sampling.drawing import (
    MAX_NOISE,
    PURPOSE_DRAW,
    PURPOSE_XTC,
    DrawNoise,
    allowed_ids,
    allows,
    philox,
)

# Random123 1.14, kat_vectors, philox4x32 10: counter, key, first word of the answer.
KNOWN = [
    ((0, 0, 0, 0), 0, 0x6627E8D5),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, 0x408F276D),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822, 0xD16CFE09),
]


@pytest.mark.conformance
@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_philox_gives_the_published_words(counter: tuple[int, int, int, int], key: int, want: int) -> None:
    assert philox(key, counter) == want


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 5, 2**64 - 1])
@pytest.mark.parametrize(("choice", "position"), [(0, 0), (3, 0), (0, 12345), (2, 2**32 - 1)])
def test_noise_equals_the_references(seed: int, choice: int, position: int) -> None:
    ids = np.array([0, 1, 255, 151935, 2**31 - 1], np.uint64)
    words = numpy_philox(seed, ids, position, choice, PURPOSE_DRAW)
    u = ((words >> np.uint64(8)) + 0.5) * 2.0**-24
    noise = DrawNoise(seed, choice, position)
    assert [noise.gumbel(int(i)) for i in ids] == pytest.approx((-np.log(-np.log(u))).tolist(), rel=1e-14)


def test_each_purpose_has_its_own_random_numbers() -> None:
    noise = DrawNoise(7, 0, 3)
    assert noise.uniform(PURPOSE_XTC) != noise.uniform(PURPOSE_DRAW)


def test_noise_is_never_above_its_bound() -> None:
    assert pytest.approx(-log(-log(((2**24 - 1) + 0.5) * 2.0**-24)), abs=1e-12) == MAX_NOISE
    assert max(DrawNoise(7, 0, 0).gumbel(i) for i in range(3000)) < MAX_NOISE


def test_the_ids_of_a_mask_are_in_order() -> None:
    ids = {0, 7, 8, 63, 64, 71}
    mask = sum(1 << i for i in ids).to_bytes(10, "little")
    assert list(allowed_ids(mask)) == sorted(ids)
    assert [i for i in range(200) if allows(mask, i)] == sorted(ids), "ids beyond the mask's end are allowed"

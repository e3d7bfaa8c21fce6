"""The signs of sketches."""

from __future__ import annotations

from array import array
from functools import lru_cache
from random import Random

SEED = 27  # never changed: keys of a store are compared with keys of later processes


@lru_cache(maxsize=4)  # a vocabulary's signs are used for every row
def signs_of(n: int) -> array[float]:
    """n signs, +1 or -1, the same in every process."""
    bits = Random(SEED).getrandbits(n)
    return array("f", [1.0 if bits >> i & 1 else -1.0 for i in range(n)])

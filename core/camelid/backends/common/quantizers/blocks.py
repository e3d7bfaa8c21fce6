"""Blocks of values as columns, scaled by powers of two, so that no product in a fit overflows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.common.codecs.bits import Bytes, half_bytes
from camelid.backends.common.quantizers.fit import Floats

EXPONENTS = (1, 253)  # biased exponents whose power of two and its inverse are normal float32


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of one type: values below 4 in magnitude and weights [block, n]; their power of two [n]."""

    x: Floats
    w: Floats
    up: Floats

    @property
    def down(self) -> Floats:
        """The inverse power of two, [n]."""
        return _power(254 - (self.up.view(np.uint32) >> 23))

    def groups(self, size: int) -> tuple[Floats, Floats]:
        """Values and weights by group, [groups, size, n] each."""
        n = self.x.shape[1]
        return self.x.reshape(-1, size, n), self.w.reshape(-1, size, n)

    def stored(self, d: Floats) -> tuple[Bytes, Floats]:
        """The scale d [n] as float16 bytes [n, 2], and its value after rounding, [n], in the blocks' units;
        0 for a scale that overflows float16."""
        raw = half_bytes((d * self.up + np.float32(0))[:, None])  # + 0: -0 is stored as 0
        value = raw.view("<f2")[:, 0].astype(np.float32)
        return raw, np.where(np.isfinite(value), value * self.down, np.float32(0))


def blocks_of(values: Floats, weights: Floats) -> Blocks:
    """[n, block] twice -> columns; the largest value of each is from 1 to 2, or to 4 if it is huge."""
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFFFFFF)
    exponent = (bits.max(axis=1) >> np.uint32(23)).clip(*EXPONENTS)  # [n]
    down = _power(254 - exponent)
    x = np.ascontiguousarray((values * down[:, None]).T)
    return Blocks(x, np.ascontiguousarray(weights.T), _power(exponent))


def _power(exponent: NDArray[Any]) -> Floats:
    return (exponent.astype(np.uint32) << np.uint32(23)).view(np.float32)

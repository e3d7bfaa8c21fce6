"""The random numbers of a draw, and what a grammar says about the next token.

A draw is the argmax of final logit + Gumbel noise over the tokens left, and a token's noise depends on (seed,
choice, position, token id) alone: on no order, batch, backend, or other token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from typing import Protocol, TypeAlias

WORD = 0xFFFFFFFF
PURPOSE_DRAW, PURPOSE_XTC = 0, 1
MOST_NOISE = -log(-log(1 - 2.0**-25))  # u is at most 1 - 2**-25
BITS = tuple(tuple(i for i in range(8) if byte >> i & 1) for byte in range(256))


class Constraint(Protocol):
    """Which tokens may come next: `text.grammar.Matcher`, or what stands in for it."""

    @property
    def is_finished(self) -> bool:
        """Nothing but the end may follow."""
        ...

    def mask(self) -> bytes:
        """Bit i % 8 of byte i // 8: token i may come next."""
        ...

    def accept(self, token_id: int) -> bool:
        """Goes on by one token; False, and no change, if it may not come."""
        ...


ConstraintFactory: TypeAlias = Callable[[], Constraint]  # of one sequence


def allowed_ids(mask: bytes) -> Iterator[int]:
    """The tokens of a mask, in order."""
    for i, byte in enumerate(mask):
        if byte:
            yield from (8 * i + bit for bit in BITS[byte])


def allows(mask: bytes, token_id: int) -> bool:
    """Whether a mask lets a token through. A model may have more rows than its vocabulary has tokens."""
    at = token_id >> 3
    return at < len(mask) and mask[at] >> (token_id & 7) & 1 == 1


def philox(seed: int, counter: tuple[int, int, int, int]) -> int:
    """First word of Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed."""
    a, b, c, d = counter
    low, high = seed & WORD, seed >> 32
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ low, right & WORD, (left >> 32) ^ d ^ high, left & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return a


@dataclass(frozen=True, slots=True)
class DrawNoise:
    """The random numbers of one draw: the same whatever was drawn before, beside it, or on which machine."""

    seed: int
    choice: int
    position: int

    def uniform(self, purpose: int, token_id: int = 0) -> float:
        """Above 0 and below 1."""
        word = philox(self.seed, (token_id, self.position, self.choice, purpose))
        return ((word >> 8) + 0.5) * 2.0**-24

    def gumbel(self, token_id: int) -> float:
        """Noise of one token: the argmax of logit + noise is a draw from the softmax (Gumbel, 1954)."""
        return -log(-log(self.uniform(PURPOSE_DRAW, token_id)))

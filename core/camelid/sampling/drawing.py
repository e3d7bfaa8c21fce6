"""Random numbers of a draw, and the masks of constraints.

A draw is the argmax of final logit + Gumbel noise over the surviving tokens. A token's noise depends only on
(seed, choice, position, token id), so a draw is independent of order, batch and backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from typing import Protocol, TypeAlias

WORD = 0xFFFFFFFF
PURPOSE_DRAW, PURPOSE_XTC = 0, 1
MAX_NOISE = -log(-log(1 - 2.0**-25))  # u is at most 1 - 2**-25
BITS = tuple(tuple(i for i in range(8) if byte >> i & 1) for byte in range(256))


class Constraint(Protocol):
    """The allowed next tokens of one sequence: implemented by `text.grammar.Matcher`."""

    @property
    def is_finished(self) -> bool:
        """True if only the end token may follow."""
        ...

    @property
    def is_lazy(self) -> bool:
        """True if the device draws without the mask, and only a token that is not allowed is drawn again."""
        ...

    def ready(self) -> bool:
        """False while another process makes the next mask, which the first call starts."""
        ...

    def mask(self) -> bytes:
        """A bit mask: bit i % 8 of byte i // 8 allows token i."""
        ...

    def accept(self, token_id: int) -> bool:
        """Advances by one token. Returns False and stays unchanged if the token is not allowed."""
        ...


class LateMask(Exception):
    """The next mask is not ready yet."""


ConstraintFactory: TypeAlias = Callable[[], Constraint]  # a new constraint for each sequence


def allowed_ids(mask: bytes) -> Iterator[int]:
    """The token ids that a mask allows, in order."""
    for i, byte in enumerate(mask):
        if byte:
            yield from (8 * i + bit for bit in BITS[byte])


def allows(mask: bytes, token_id: int) -> bool:
    """True if a mask allows a token. A model may have more logits than its tokenizer has tokens."""
    byte = token_id >> 3
    return byte < len(mask) and mask[byte] >> (token_id & 7) & 1 == 1


def philox(seed: int, counter: tuple[int, int, int, int]) -> int:
    """The first output word of Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed."""
    a, b, c, d = counter
    low, high = seed & WORD, seed >> 32
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ low, right & WORD, (left >> 32) ^ d ^ high, left & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return a


@dataclass(frozen=True, slots=True)
class DrawNoise:
    """The random numbers of one draw: a function of these fields, equal on every machine."""

    seed: int
    choice: int
    position: int

    def uniform(self, purpose: int, token_id: int = 0) -> float:
        """A uniform number in (0, 1)."""
        word = philox(self.seed, (token_id, self.position, self.choice, purpose))
        return ((word >> 8) + 0.5) * 2.0**-24

    def gumbel(self, token_id: int) -> float:
        """Gumbel noise of a token: the argmax of logit + noise is a draw from the softmax (Gumbel, 1954)."""
        return -log(-log(self.uniform(PURPOSE_DRAW, token_id)))

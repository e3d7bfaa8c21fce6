"""Drawing a token on the host, for requests whose grammar allows some tokens only: mask, then the chain.

A draw is the argmax of logit / temperature + Gumbel noise, and a token's noise depends on (seed, choice,
position, token id) alone. So a token that wins among all tokens also wins among those allowed if it is one:
then what the device drew stands, and its logits are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Protocol

from camelid.errors import RequestError
from camelid.plan.step import StepSampling

WORD = 0xFFFFFFFF
PURPOSE_DRAW = 0
# The largest noise there is: u is at most 1 - 2**-25.
MOST_NOISE = -log(-log(1 - 2.0**-25))
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


def allows(mask: bytes, token_id: int) -> bool:
    """Whether the mask has the token."""
    return bool(mask[token_id >> 3] >> (token_id & 7) & 1)


def allowed_ids(mask: bytes) -> Iterator[int]:
    """The tokens of a mask, in order."""
    for i, byte in enumerate(mask):
        if byte:
            yield from (8 * i + bit for bit in BITS[byte])


def philox(seed: int, counter: tuple[int, int, int, int]) -> int:
    """First word of Philox4x32-10 (Salmon et al., SC 2011), keyed by the seed."""
    a, b, c, d = counter
    low, high = seed & WORD, seed >> 32
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ low, right & WORD, (left >> 32) ^ d ^ high, left & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return a


def noise(how: StepSampling, token_id: int, position: int) -> float:
    """Gumbel noise of one token."""
    word = philox(how.seed, (token_id, position, how.choice, PURPOSE_DRAW))
    return -log(-log(((word >> 8) + 0.5) * 2.0**-24))


def draw(logits: Sequence[float], mask: bytes, how: StepSampling, position: int) -> int:
    """The token that wins among those allowed; ties take the lowest id.

    `logits` are [V]. Noise is computed only for tokens that could still win. RequestError if none is allowed.
    """
    ids = list(allowed_ids(mask))
    if not ids:
        raise RequestError(
            "the grammar is stuck: no token of this vocabulary goes on with it, and it may not end here; "
            "allow for other spellings",
            field="grammar",
        )
    best = max(ids, key=logits.__getitem__)  # the first of several
    if how.temperature <= 0.0:
        return best
    score = logits[best] / how.temperature + noise(how, best, position)
    hopeful = [i for i in ids if logits[i] / how.temperature + MOST_NOISE >= score]
    scores = {i: logits[i] / how.temperature + noise(how, i, position) for i in hopeful}
    return max(hopeful, key=scores.__getitem__)


def choose(drawn: int, logits: Sequence[float], mask: bytes, how: StepSampling, position: int) -> int:
    """What the device drew among all tokens, if it is allowed, else the winner among those that are."""
    return drawn if allows(mask, drawn) else draw(logits, mask, how, position)

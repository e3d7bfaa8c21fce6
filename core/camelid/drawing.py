"""Drawing a token on the host, for requests whose grammar allows some tokens only: mask, then the chain.

A draw is the argmax of logit / temperature + Gumbel noise, and a token's noise depends on (seed, choice,
position, token id) alone. So a token that wins among all tokens also wins among those allowed if it is one:
then what the device drew stands, and its logits are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Protocol

from camelid.errors import RequestError
from camelid.plan.step import StepSampling

WORD = 0xFFFFFFFF
PURPOSE_DRAW, PURPOSE_XTC = 0, 1
# The bounds of noise: u is from 2**-25 to 1 - 2**-25.
MOST_NOISE = -log(-log(1 - 2.0**-25))
LEAST_NOISE = -log(-log(2.0**-25))
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


@dataclass(frozen=True, slots=True)
class Dice:
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


def noise(how: StepSampling, token_id: int, position: int) -> float:
    """Gumbel noise of one token."""
    return Dice(how.seed, how.choice, position).gumbel(token_id)


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
    if how.temperature <= 0.0:
        return max(ids, key=logits.__getitem__)  # the first of several
    most = max(map(logits.__getitem__, ids)) / how.temperature
    hopeful = [i for i in ids if logits[i] / how.temperature + MOST_NOISE >= most + LEAST_NOISE]
    hopeful.sort(key=logits.__getitem__, reverse=True)  # likeliest first, so that few draw noise
    winner, best = hopeful[0], -inf
    for i in hopeful:
        level = logits[i] / how.temperature
        if level + MOST_NOISE < best:
            break
        score = level + noise(how, i, position)
        if score > best or (score == best and i < winner):
            winner, best = i, score
    return winner


def choose(
    drawn: int, logits: Sequence[float], constraint: Constraint, how: StepSampling, position: int
) -> int:
    """What the device drew among all tokens, if it is allowed, else the winner among those that are.

    The constraint goes on by it. A mask is made only for the second, since it costs more than one test.
    """
    if constraint.accept(drawn):
        return drawn
    token_id = draw(logits, constraint.mask(), how, position)
    constraint.accept(token_id)
    return token_id

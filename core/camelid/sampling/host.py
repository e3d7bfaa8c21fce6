"""Drawing on the host: for what a device's chain does not have, and for requests with a grammar.

The definition: the mask of a grammar first, then the chain, then the token whose final logit + Gumbel noise
is greatest; of equals the lowest id. It is the same on a device's largest logits as on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import exp, fsum, inf, log, log2
from operator import neg
from typing import cast

from camelid.backends.base import Candidates, OutputRow
from camelid.errors import RequestError
from camelid.plan.step import CANDIDATES
from camelid.sampling.drawing import MOST_NOISE, Constraint, DrawNoise, allowed_ids, allows
from camelid.sampling.params import SamplingParams
from camelid.sampling.samplers import SAMPLERS
from camelid.sampling.survivors import NeedsAllLogits, Survivors, UnlistedTokens, log_of
from camelid.sampling.values import SamplerContext

__all__ = ["HostSampler", "NeedsAllLogits", "Scores", "top_logprobs"]

# Of a device's log-sum-exp, as a share of the sum: its terms, and the rounding of the log to float32.
SUM_ERROR, LOG_ERROR = 3e-5, 2.0**-22
SAMPLED = 61  # every such logit; no power of 2, since vocabularies have structure
SHORT_LIST = 4096  # a mask that leaves so few tokens makes all logits few


@dataclass(frozen=True, slots=True)
class Scores:
    """A row's raw logits: its largest with sums over all, or all of them, or both."""

    log_sum_exp: float
    candidates: Candidates | None
    logits: memoryview[float] | None  # [V]

    @classmethod
    def of_row(cls, row: OutputRow) -> Scores:
        """What a device gave back."""
        return cls(row.log_sum_exp, row.candidates, row.logits)

    def logprob(self, token_id: int) -> float:
        """The natural log of a token's probability before masks and samplers. It must be given."""
        if self.logits is not None:
            return self.logits[token_id] - self.log_sum_exp
        assert self.candidates is not None, "a row has one of them"
        return self.candidates.logits[self.candidates.ids.tolist().index(token_id)] - self.log_sum_exp

    def largest(self, n: int) -> list[tuple[float, int]]:
        """(logit, id) of the n largest logits, at most `CANDIDATES`: largest first, ties by id."""
        if self.candidates is not None:
            logits = self.candidates.logits.tolist()
            # A backend may compare more digits than it sends: then of equals the lowest id is not the first.
            pairs = sorted(zip(map(neg, logits), self.candidates.ids.tolist(), strict=True))
            return [(-level, i) for level, i in pairs[:n]]
        values = self._all()
        return [(values[i], i) for i in largest_places(values, n)]

    def rankings(self, vocab_size: int, mask: bytes | None) -> Iterator[Survivors]:
        """The tokens that may come next: the likeliest and what is known of the rest, then all, if given."""
        n_allowed = vocab_size if mask is None else int.from_bytes(mask, "little").bit_count()
        if self.logits is None or n_allowed > SHORT_LIST:
            yield from self._short(vocab_size, mask)
        if self.logits is not None:
            yield self._whole(mask)

    def _short(self, vocab_size: int, mask: bytes | None) -> Iterator[Survivors]:
        pairs = [pair for pair in self.largest(min(CANDIDATES, vocab_size)) if pair[0] > -inf]
        left = [(logit, i) for logit, i in pairs if mask is None or allows(mask, i)]
        if left:
            rest = self._rest([logit for logit, _ in pairs], vocab_size, is_masked=mask is not None)
            yield Survivors([i for _, i in left], [logit for logit, _ in left], rest)

    def _rest(self, logits: list[float], vocab_size: int, *, is_masked: bool) -> UnlistedTokens | None:
        """What is known of all but the largest logits. A mask leaves nobody knows how many of them."""
        n, top, bound = vocab_size - len(logits), logits[0], logits[-1]
        if len(logits) < CANDIDATES or n <= 0:
            return None
        listed, total = fsum(exp(logit - top) for logit in logits), exp(self.log_sum_exp - top)
        error = total * (SUM_ERROR + LOG_ERROR * abs(self.log_sum_exp))
        low = -inf if is_masked else top + log_of(total - error - listed)
        high = min(top + log_of(total + error - listed), log(n) + bound)
        deviation = None if is_masked or self.candidates is None else self.candidates.variance**0.5
        return UnlistedTokens(n, bound, low, high, deviation)

    def _whole(self, mask: bytes | None) -> Survivors:
        values = self._all()
        ids = range(len(values)) if mask is None else allowed_ids(mask)
        left = [i for i in ids if i < len(values) and values[i] > -inf]
        left.sort(key=values.__getitem__, reverse=True)  # stable: of equals the lowest id first
        return Survivors(left, [values[i] for i in left])

    def _all(self) -> list[float]:
        assert self.logits is not None, "a row has one of them"
        return cast("list[float]", self.logits.tolist())  # faster than list()


class HostSampler:
    """Draws the tokens of one sequence. `copy.copy` makes another that goes on from here.

    `token_bytes` gives the text of a token, in which DRY looks for its breakers; without a tokenizer a text
    has none. `choice` tells the noise of several answers to one prompt apart.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        *,
        choice: int = 0,
        token_bytes: Callable[[int], bytes] = lambda token_id: b"",
    ) -> None:
        self.params = params
        self.choice = choice
        self.mu = 2.0 * params.mirostat_tau
        self.needed_all = False  # whether the latest draw was from all logits
        self._vocab_size = vocab_size
        self._token_bytes = token_bytes
        self._breakers = [breaker.encode() for breaker in params.dry_sequence_breakers]
        self._chain = [SAMPLERS[name].apply for name in params.chain]

    def draw(self, view: Scores, history: Sequence[int], position: int, mask: bytes | None = None) -> int:
        """The next token after `history`, which is prompt and answer so far.

        `position` keys the noise; bit i % 8 of byte i // 8 of `mask` lets token i through. Raises
        NeedsAllLogits if the view's candidates prove nothing and it has no more, RequestError if no token is
        left.
        """
        context = self._turn(history, position)
        for survivors in view.rankings(self._vocab_size, mask):
            self.needed_all = survivors.rest is None  # before samplers cut it off
            try:
                return self._drawn(survivors, context)
            except NeedsAllLogits:
                continue
        if view.logits is None:
            raise NeedsAllLogits
        raise self._nothing_left(mask)

    def choose(
        self, drawn: int, view: Scores, constraint: Constraint, history: Sequence[int], position: int
    ) -> int:
        """The token of a request with a constraint, which goes on by it. `drawn` is what the device's chain
        drew without the mask.

        Where the chain looks at each token by itself, what wins among all also wins among those allowed, if
        it is one of them: then no mask is made, which costs more than one test.
        """
        if self.params.is_pointwise and self.params.fits_device and constraint.accept(drawn):
            return drawn
        token_id = self.draw(view, history, position, constraint.mask())
        constraint.accept(token_id)
        return token_id

    def _turn(self, history: Sequence[int], position: int) -> SamplerContext:
        assert self.params.seed is not None, "seeded() comes first"
        return SamplerContext(
            params=self.params,
            noise=DrawNoise(self.params.seed, self.choice, position),
            history=history,
            vocab_size=self._vocab_size,
            mu=self.mu,
            token_bytes=self._token_bytes,
            breakers=self._breakers,
        )

    def _drawn(self, survivors: Survivors, context: SamplerContext) -> int:
        for apply in self._chain:
            if not survivors.ids:
                raise NeedsAllLogits
            apply(survivors, context)
        place = winner(survivors, context.noise)
        if self.params.mirostat:
            self._learn(survivors, place)
        return survivors.ids[place]

    def _learn(self, survivors: Survivors, place: int) -> None:
        """Mirostat's step: mu falls by eta * (surprise in bits - tau)."""
        surprise = log2(survivors.shares().totals[0]) - survivors.levels[place] / log(2.0)
        self.mu -= self.params.mirostat_eta * (surprise - self.params.mirostat_tau)

    def _nothing_left(self, mask: bytes | None) -> RequestError:
        if mask is not None and not any(mask):
            return RequestError(
                "the grammar is stuck: no token of this vocabulary goes on with it, and it may not end here; "
                "allow for other spellings",
                field="grammar",
            )
        return RequestError("logit_bias bans every token that may come next; ban fewer", field="logit_bias")


def largest_places(values: Sequence[float], n: int) -> list[int]:
    """The places of the n largest values, largest first, of equals the first.

    A sample guesses a bound that a few more than n reach: five times as fast as a heap of 150,000.
    """
    sample = sorted(values[::SAMPLED], reverse=True)
    guess = sample[min(2 * n // SAMPLED + 4, len(sample) - 1)]
    places = [i for i, value in enumerate(values) if value >= guess]
    if len(places) < n:
        return nlargest(n, range(len(values)), key=values.__getitem__)
    return sorted(places, key=values.__getitem__, reverse=True)[:n]


def winner(survivors: Survivors, noise: DrawNoise) -> int:
    """The place of the token whose logit + noise is greatest; of equals the lowest id.

    NeedsAllLogits if it may be one that is not listed.
    """
    if len(survivors.ids) == 1 and survivors.rest is None:
        return 0
    best, place = -inf, -1
    for i, logit in enumerate(survivors.logits):
        if logit + MOST_NOISE < best:
            break
        score = logit + noise.gumbel(survivors.ids[i])
        if score > best or (score == best and survivors.ids[i] < survivors.ids[place]):
            best, place = score, i
    if place < 0 or (survivors.rest and survivors.rest.bound + MOST_NOISE >= best):
        raise NeedsAllLogits
    return place


def top_logprobs(row: OutputRow, n: int) -> list[tuple[int, float]]:
    """(id, natural log of its probability) of the n likeliest tokens, before masks and samplers."""
    return [(i, logit - row.log_sum_exp) for logit, i in Scores.of_row(row).largest(n)]

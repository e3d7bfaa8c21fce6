"""Draws tokens on the host: for samplers that a device's chain lacks, and for requests with a constraint.

Definition of a draw: the constraint's mask, then the chain of samplers, then the token with the greatest
final logit + Gumbel noise; ties take the lowest id. A device's candidates and all logits give the same token.
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
from camelid.sampling.drawing import MAX_NOISE, Constraint, DrawNoise, LateMask, allowed_ids, allows
from camelid.sampling.params import SamplingParams
from camelid.sampling.samplers import SAMPLERS
from camelid.sampling.survivors import NeedsAllLogits, Survivors, UnlistedTokens, log_of
from camelid.sampling.values import SamplerContext

__all__ = ["HostSampler", "NeedsAllLogits", "Scores"]

# Relative errors of a device's log-sum-exp: of its terms, and of the rounding of the log to float32.
SUM_ERROR, LOG_ERROR = 3e-5, 2.0**-22
SAMPLED = 61  # stride of sampled logits; no power of 2, since vocabularies have structure
SHORT_LIST = 4096  # up to this many allowed tokens, all logits are sorted without trying the candidates


@dataclass(frozen=True, slots=True)
class Scores:
    """The raw logits of an output row: candidates (largest logits, sums over all), all logits, or both."""

    log_sum_exp: float
    candidates: Candidates | None
    logits: memoryview[float] | None  # [V]

    @classmethod
    def of_row(cls, row: OutputRow) -> Scores:
        """The scores of a device's output row."""
        return cls(row.log_sum_exp, row.candidates, row.logits)

    def logprob(self, token_id: int) -> float:
        """The natural log of a token's probability before masks and samplers. The row must list the token."""
        if self.logits is not None:
            return self.logits[token_id] - self.log_sum_exp
        assert self.candidates is not None, "a row without candidates has all logits"
        return self.candidates.logits[self.candidates.ids.tolist().index(token_id)] - self.log_sum_exp

    def largest(self, n: int) -> list[tuple[float, int]]:
        """(logit, id) of the n largest logits, at most `CANDIDATES`: largest first, ties by id."""
        if self.candidates is not None:
            logits = self.candidates.logits.tolist()
            # A backend may compare more digits than it sends, so equal logits may not be ordered by id.
            pairs = sorted(zip(map(neg, logits), self.candidates.ids.tolist(), strict=True))
            return [(-negated, i) for negated, i in pairs[:n]]
        values = self._logit_list()
        return [(values[i], i) for i in largest_indices(values, n)]

    def top_logprobs(self, n: int) -> list[tuple[int, float]]:
        """(token id, natural log of its probability) of the n likeliest tokens, before masks and samplers."""
        return [(i, logit - self.log_sum_exp) for logit, i in self.largest(n)]

    def survivors(self, vocab_size: int, mask: bytes | None) -> Iterator[Survivors]:
        """The allowed tokens: first the candidates with bounds on the others, then all logits if present."""
        n_allowed = vocab_size if mask is None else int.from_bytes(mask, "little").bit_count()
        if self.logits is None or n_allowed > SHORT_LIST:
            yield from self._candidate_survivors(vocab_size, mask)
        if self.logits is not None:
            yield self._all_survivors(mask)

    def _candidate_survivors(self, vocab_size: int, mask: bytes | None) -> Iterator[Survivors]:
        pairs = [pair for pair in self.largest(min(CANDIDATES, vocab_size)) if pair[0] > -inf]
        allowed = [(logit, i) for logit, i in pairs if mask is None or allows(mask, i)]
        if allowed:
            unlisted = self._unlisted([logit for logit, _ in pairs], vocab_size, is_masked=mask is not None)
            yield Survivors([i for _, i in allowed], [logit for logit, _ in allowed], unlisted)

    def _unlisted(self, logits: list[float], vocab_size: int, *, is_masked: bool) -> UnlistedTokens | None:
        """Bounds on all logits but the largest. A mask allows an unknown number of the others."""
        n, top, bound = vocab_size - len(logits), logits[0], logits[-1]
        if len(logits) < CANDIDATES or n <= 0:
            return None
        listed, total = fsum(exp(logit - top) for logit in logits), exp(self.log_sum_exp - top)
        error = total * (SUM_ERROR + LOG_ERROR * abs(self.log_sum_exp))
        low = -inf if is_masked else top + log_of(total - error - listed)
        high = min(top + log_of(total + error - listed), log(n) + bound)
        deviation = None if is_masked or self.candidates is None else self.candidates.variance**0.5
        return UnlistedTokens(n, bound, low, high, deviation)

    def _all_survivors(self, mask: bytes | None) -> Survivors:
        values = self._logit_list()
        ids = range(len(values)) if mask is None else allowed_ids(mask)
        allowed = [i for i in ids if i < len(values) and values[i] > -inf]
        allowed.sort(key=values.__getitem__, reverse=True)  # stable: ties by lowest id
        return Survivors(allowed, [values[i] for i in allowed])

    def _logit_list(self) -> list[float]:
        assert self.logits is not None, "a row without candidates has all logits"
        return cast("list[float]", self.logits.tolist())  # faster than list()


class HostSampler:
    """Draws the tokens of one sequence. `copy.copy` makes the sampler of a fork.

    DRY searches for its breakers in `token_bytes`; the default, for a model without a tokenizer, has no
    breakers. `choice` gives each of several answers to one prompt its own noise.
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
        self.needed_all = False  # True if the latest draw used all logits
        self._vocab_size = vocab_size
        self._token_bytes = token_bytes
        self._breakers = [breaker.encode() for breaker in params.dry_sequence_breakers]
        self._chain = [SAMPLERS[name].apply for name in params.chain]

    @property
    def needs_mask(self) -> bool:
        """True if every constrained draw needs the mask; else only a draw whose token is not allowed."""
        return not (self.params.is_pointwise and self.params.fits_device)

    def draw(self, view: Scores, history: Sequence[int], position: int, mask: bytes | None = None) -> int:
        """Draws the next token after `history`, the token ids of prompt and answer so far.

        `position` keys the noise; bit i % 8 of byte i // 8 of `mask` allows token i. Raises NeedsAllLogits if
        the candidates prove no result and the row has no further logits, RequestError if no token survives.
        """
        context = self._context(history, position)
        for survivors in view.survivors(self._vocab_size, mask):
            self.needed_all = survivors.unlisted is None  # samplers clear `unlisted`
            try:
                return self._run_chain(survivors, context)
            except NeedsAllLogits:
                continue
        if view.logits is None:
            raise NeedsAllLogits
        raise self._no_token_error(mask)

    def choose(
        self, drawn: int, view: Scores, constraint: Constraint, history: Sequence[int], position: int
    ) -> int:
        """Draws the next token of a constrained request and advances the constraint.

        `drawn` is the token that the device's chain drew without the mask. With a pointwise chain it is also
        the draw with the mask, if the constraint accepts it; one test costs less than a mask. Raises
        LateMask, without a change, if the mask is needed and not ready.
        """
        if not self.needs_mask and constraint.accept(drawn):
            return drawn
        if not constraint.ready():
            raise LateMask
        token_id = self.draw(view, history, position, constraint.mask())
        constraint.accept(token_id)
        return token_id

    def _context(self, history: Sequence[int], position: int) -> SamplerContext:
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

    def _run_chain(self, survivors: Survivors, context: SamplerContext) -> int:
        for apply in self._chain:
            if not survivors.ids:
                raise NeedsAllLogits
            apply(survivors, context)
        index = winner(survivors, context.noise)
        if self.params.mirostat:
            self._update_mu(survivors, index)
        return survivors.ids[index]

    def _update_mu(self, survivors: Survivors, index: int) -> None:
        """Mirostat's update: mu falls by eta * (surprise in bits - tau)."""
        surprise = log2(survivors.token_weights().totals[0]) - survivors.relative_logits[index] / log(2.0)
        self.mu -= self.params.mirostat_eta * (surprise - self.params.mirostat_tau)

    def _no_token_error(self, mask: bytes | None) -> RequestError:
        if mask is not None and not any(mask):
            return RequestError(
                "the grammar is stuck: no token of this vocabulary continues it, and it may not end here; "
                "allow other spellings in the grammar",
                field="grammar",
            )
        return RequestError("logit_bias bans every allowed token; ban fewer tokens", field="logit_bias")


def largest_indices(values: Sequence[float], n: int) -> list[int]:
    """Indices of the n largest values, largest first, ties by index.

    A sample estimates a threshold that slightly more than n values reach: five times as fast as a heap for
    150,000 values.
    """
    sample = sorted(values[::SAMPLED], reverse=True)
    threshold = sample[min(2 * n // SAMPLED + 4, len(sample) - 1)]
    indices = [i for i, value in enumerate(values) if value >= threshold]
    if len(indices) < n:
        return nlargest(n, range(len(values)), key=values.__getitem__)
    return sorted(indices, key=values.__getitem__, reverse=True)[:n]


def winner(survivors: Survivors, noise: DrawNoise) -> int:
    """Index of the token with the greatest logit + noise; ties take the lowest id.

    Raises NeedsAllLogits if an unlisted token may win.
    """
    if len(survivors.ids) == 1 and survivors.unlisted is None:
        return 0
    best, index = -inf, -1
    for i, logit in enumerate(survivors.logits):
        if logit + MAX_NOISE < best:
            break
        noisy = logit + noise.gumbel(survivors.ids[i])
        if noisy > best or (noisy == best and survivors.ids[i] < survivors.ids[index]):
            best, index = noisy, i
    if index < 0 or (survivors.unlisted and survivors.unlisted.bound + MAX_NOISE >= best):
        raise NeedsAllLogits
    return index

"""Every sampler: one function that leaves fewer tokens or other logits, and one row of `SAMPLERS`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import exp, expm1, fsum, log
from typing import TYPE_CHECKING

from camelid.sampling.checks import BIASES, BREAKERS, Check, integer, number
from camelid.sampling.drawing import PURPOSE_XTC, Dice
from camelid.sampling.history import dry, lowered, penalties
from camelid.sampling.pool import NeedsAllLogits, Pool, Shares, agreed, log_of

if TYPE_CHECKING:
    from camelid.sampling.params import SamplingParams

MIROSTAT_M = 100  # so many of the likeliest tokens estimate the exponent of Zipf's law, as in llama.cpp
DEVIATION_ERROR = 1e-3  # of a device's standard deviation, relative, at most
LEAST_DYNAMIC = 1e-6  # below, logits / temperature would drown the noise that is added
LN_2 = log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a sampler may look at besides the tokens left. `mu` is mirostat's bound on surprise, in bits."""

    params: SamplingParams
    dice: Dice
    history: Sequence[int]
    vocab_size: int
    mu: float
    token_bytes: Callable[[int], bytes]
    breakers: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """One row: the options with their checks, whether it does anything, and what it does.

    `keeps_first` says that the likeliest token always stays: before greedy it has nothing to do.
    """

    options: Mapping[str, Check]
    is_active: Callable[[SamplingParams], bool]
    apply: Callable[[Pool, Turn], None]
    keeps_first: bool = False


def logit_bias(pool: Pool, turn: Turn) -> None:
    """Adds to the logits of named tokens; -inf bans one."""
    pool.alter({i: partial(lowered, -bias) for i, bias in turn.params.logit_bias})


def top_n_sigma(pool: Pool, turn: Turn) -> None:
    """Leaves logits of at least max - n * their standard deviation (Tang et al., 2024)."""
    error = DEVIATION_ERROR if pool.rest else 0.0
    reach = turn.params.top_n_sigma * pool.deviation
    cuts = (pool.logits[0] - reach * (1.0 + e) for e in (-error, error))
    pool.keep(agreed(*map(pool.count, cuts)))


def top_k(pool: Pool, turn: Turn) -> None:
    """Leaves the k likeliest (Fan et al., 2018)."""
    k = turn.params.top_k
    if pool.rest is None or k < len(pool.ids) + pool.rest.n:
        pool.keep(k)


def typical_p(pool: Pool, turn: Turn) -> None:
    """Leaves the tokens whose surprise is nearest to the expected one, until their probability is above p
    (Meister et al., 2023). Surprise is a constant less the logit, so that logits are compared."""
    shares = pool.shares()
    means = expected_levels(pool, shares)
    sets = {typical_set(pool, turn, shares, mean, total) for mean in means for total in shares.totals}
    if len(sets) > 1:
        raise NeedsAllLogits
    pool.choose(sets.pop())


def expected_levels(pool: Pool, shares: Shares) -> tuple[float, float]:
    """The least and the most that the mean of logit - first logit can be.

    For n numbers that sum to s, the sum of x log x is s log(s / n) at least, and s times the log of the
    greatest at most.
    """
    listed = fsum(w * level for w, level in zip(shares.weights, pool.levels, strict=True))
    if pool.rest is None:
        return listed / shares.totals[0], listed / shares.totals[0]
    (least, most), n, bound = shares.rest, pool.rest.n, pool.bound
    s = min(most, n * exp(-1.0))  # where s log(s / n) is least
    low = listed + (s * log(s / n) if s > 0.0 else 0.0)
    high = listed + max(least * bound, most * bound)
    return min(low / total for total in shares.totals), max(high / total for total in shares.totals)


def typical_set(pool: Pool, turn: Turn, shares: Shares, mean: float, total: float) -> tuple[int, ...]:
    """The places of the tokens nearest to the mean. NeedsAllLogits if one not listed may be as near."""
    p, levels = turn.params, pool.levels
    order = sorted(range(len(levels)), key=lambda i: abs(levels[i] - mean))  # of equals the likelier first
    sums = list(accumulate(shares.weights[i] for i in order))
    n = max(bisect_right(sums, p.typical_p * total) + 1, p.min_keep)
    if pool.rest and (n > len(order) or mean - pool.bound <= abs(levels[order[n - 1]] - mean)):
        raise NeedsAllLogits
    return tuple(sorted(order[:n]))


def top_p(pool: Pool, turn: Turn) -> None:
    """Leaves the likeliest tokens until their probability is p (Holtzman et al., 2020)."""
    shares, p = pool.shares(), turn.params
    sums = list(accumulate(shares.weights))
    n = agreed(*(bisect_left(sums, p.top_p * total) for total in shares.totals)) + 1
    pool.keep(max(n, p.min_keep))


def min_p(pool: Pool, turn: Turn) -> None:
    """Leaves tokens that are at least p times as likely as the likeliest (Nguyen et al., 2024)."""
    n = pool.count(pool.logits[0] + log(turn.params.min_p))
    pool.keep(max(n, turn.params.min_keep))


def xtc(pool: Pool, turn: Turn) -> None:
    """Exclude top choices (p-e-w, 2024): at times drops all tokens that reach a threshold but the least
    likely of them."""
    p = turn.params
    if turn.dice.uniform(PURPOSE_XTC) >= p.xtc_probability:
        return
    cuts = (pool.logits[0] + log_of(p.xtc_threshold * total) for total in pool.shares().totals)
    n = agreed(*map(pool.count, cuts)) - 1
    if n > 0 and pool.has_beyond(n, p.min_keep):
        pool.drop(n)


def temperature(pool: Pool, turn: Turn) -> None:
    """Divides the logits by it; 0 leaves the likeliest token."""
    p = turn.params
    by = dynamic_temperature(pool, p) if p.dynatemp_range else p.temperature
    if by:
        pool.divide(by)
    else:
        pool.keep(1)


def dynamic_temperature(pool: Pool, p: SamplingParams) -> float:
    """From temperature - range to temperature + range, the higher the less sure the model is: by the entropy
    as a share of what equal tokens would have, to the power of `dynatemp_exponent` (as in llama.cpp)."""
    if pool.rest:
        raise NeedsAllLogits  # two temperatures however close may draw two tokens
    if len(pool.ids) == 1:
        return 1.0
    shares = pool.shares()
    entropy = log(shares.totals[0]) - expected_levels(pool, shares)[0]
    share = min(max(entropy / log(len(pool.ids)), 0.0), 1.0)
    least, most = max(p.temperature - p.dynatemp_range, 0.0), p.temperature + p.dynatemp_range
    return max(least + (most - least) * share**p.dynatemp_exponent, LEAST_DYNAMIC)


def mirostat(pool: Pool, turn: Turn) -> None:
    """Leaves so many tokens that surprise stays near a target (Basu et al., 2021). Each draw moves `mu`."""
    MIROSTATS[turn.params.mirostat](pool, turn)


def mirostat_1(pool: Pool, turn: Turn) -> None:
    """As many as a law of Zipf, fitted to the likeliest tokens, wants."""
    m = min(MIROSTAT_M, len(pool.ids))
    if pool.rest and pool.n_settled < MIROSTAT_M:
        raise NeedsAllLogits
    k = zipf_k(zipf_exponent(pool.logits[:m]), turn.mu, turn.vocab_size)
    pool.keep(k if pool.rest else min(k, len(pool.ids)))


def zipf_exponent(logits: Sequence[float]) -> float:
    """s of p(rank) ~ rank ** -s by least squares over neighbours."""
    ratios = [log((i + 2) / (i + 1)) for i in range(len(logits) - 1)]
    falls = [a - b for a, b in pairwise(logits)]
    squares = fsum(t * t for t in ratios)
    return fsum(t * b for t, b in zip(ratios, falls, strict=True)) / squares if squares else 1.0


def zipf_k(s: float, mu: float, n: int) -> int:
    """k = (e * 2^mu / (1 - n^-e)) ^ (1 / s) for e = s - 1, in logs, since 2^mu may overflow; 1 to n."""
    e, log_n = s - 1.0, log(n)
    log_ratio = log(e / -expm1(-e * log_n)) if abs(e * log_n) > 1e-9 else -log(log_n or 1.0)
    exponent = (log_ratio + mu * LN_2) / max(s, 1e-9)
    return n if exponent >= log_n else max(int(exp(exponent)), 1)


def mirostat_2(pool: Pool, turn: Turn) -> None:
    """Those whose surprise is at most mu, one at least."""
    cuts = (pool.logits[0] + log(total) - turn.mu * LN_2 for total in pool.shares().totals)
    pool.keep(max(agreed(*map(pool.count, cuts)), 1))


MIROSTATS = {1: mirostat_1, 2: mirostat_2}
SHARE = number(0.0, 1.0)
LAST_N = Check("an integer from 0 on, or -1 for all", integer(-1).test)
TEMPERATURES = (0.01, 100.0)  # besides 0; below, logits / temperature overflows float32

# Name of a sampler, as an order lists it -> what it is. Ranges hold logits to what float32 can tell apart.
SAMPLERS: Mapping[str, Sampler] = {
    "logit_bias": Sampler(
        options={"logit_bias": BIASES},
        is_active=lambda p: bool(p.logit_bias),
        apply=logit_bias,
    ),
    "penalties": Sampler(
        options={
            "repeat_penalty": number(0.01, 100.0),
            "repeat_last_n": LAST_N,
            "frequency_penalty": number(-100.0, 100.0),
            "presence_penalty": number(-100.0, 100.0),
        },
        is_active=lambda p: (
            p.repeat_last_n != 0
            and (p.repeat_penalty, p.frequency_penalty, p.presence_penalty) != (1.0, 0.0, 0.0)
        ),
        apply=penalties,
    ),
    "dry": Sampler(
        options={
            "dry_multiplier": number(0.0, 100.0),
            "dry_base": number(1.0, 100.0),
            "dry_allowed_length": integer(0),
            "dry_penalty_last_n": LAST_N,
            "dry_sequence_breakers": BREAKERS,
        },
        is_active=lambda p: p.dry_multiplier > 0.0 and p.dry_penalty_last_n != 0,
        apply=dry,
    ),
    "top_n_sigma": Sampler(
        options={"top_n_sigma": number(0.0, 100.0, also=-1.0, means="off")},
        is_active=lambda p: p.top_n_sigma > 0.0,
        apply=top_n_sigma,
        keeps_first=True,
    ),
    "top_k": Sampler(
        options={"top_k": Check("an integer from 1 on, or 0 or -1 for all", integer(-1).test)},
        is_active=lambda p: p.top_k > 0,
        apply=top_k,
        keeps_first=True,
    ),
    "typical_p": Sampler(
        options={"typical_p": SHARE},
        is_active=lambda p: p.typical_p < 1.0,
        apply=typical_p,
    ),
    "top_p": Sampler(
        options={"top_p": SHARE},
        is_active=lambda p: p.top_p < 1.0,
        apply=top_p,
        keeps_first=True,
    ),
    "min_p": Sampler(
        options={"min_p": SHARE},
        is_active=lambda p: p.min_p > 0.0,
        apply=min_p,
        keeps_first=True,
    ),
    "xtc": Sampler(
        options={"xtc_probability": SHARE, "xtc_threshold": SHARE},
        is_active=lambda p: p.xtc_probability > 0.0 and p.xtc_threshold <= 0.5,
        apply=xtc,
    ),
    "temperature": Sampler(
        options={
            "temperature": number(*TEMPERATURES, also=0.0, means="greedy"),
            "dynatemp_range": number(0.0, 100.0),
            "dynatemp_exponent": number(0.0, 100.0),
        },
        is_active=lambda p: p.temperature != 1.0 or p.dynatemp_range > 0.0,
        apply=temperature,
    ),
    "mirostat": Sampler(
        options={
            "mirostat": integer(0, 2),
            "mirostat_tau": number(0.0, 100.0),
            "mirostat_eta": number(0.0, 10.0),
        },
        is_active=lambda p: p.mirostat > 0,
        apply=mirostat,
        keeps_first=True,
    ),
}

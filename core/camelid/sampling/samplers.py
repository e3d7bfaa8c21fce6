"""Every sampler: one function that leaves fewer tokens or other logits, and one row of `SAMPLERS`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import exp, expm1, fsum, log

from camelid.sampling.checks import BIASES, BREAKERS, Check, integer, number
from camelid.sampling.drawing import PURPOSE_XTC
from camelid.sampling.history import dry, lowered, penalties
from camelid.sampling.survivors import NeedsAllLogits, Survivors, TokenWeights, agreed, log_of
from camelid.sampling.values import SamplerContext, SamplingValues

MIROSTAT_M = 100  # so many of the likeliest tokens estimate the exponent of Zipf's law, as in llama.cpp
DEVIATION_ERROR = 1e-3  # of a device's standard deviation, relative, at most
LEAST_DYNAMIC = 1e-6  # below, logits / temperature would drown the noise that is added
LN_2 = log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """One row: the options with their checks, whether it does anything, and what it does.

    `keeps_first` says that the likeliest token always stays: before greedy it has nothing to do.
    """

    options: Mapping[str, Check]
    is_active: Callable[[SamplingValues], bool]
    apply: Callable[[Survivors, SamplerContext], None]
    keeps_first: bool = False


def logit_bias(survivors: Survivors, context: SamplerContext) -> None:
    """Adds to the logits of named tokens; -inf bans one."""
    survivors.alter({i: partial(lowered, -bias) for i, bias in context.params.logit_bias})


def top_n_sigma(survivors: Survivors, context: SamplerContext) -> None:
    """Leaves logits of at least max - n * their standard deviation (Tang et al., 2024)."""
    error = DEVIATION_ERROR if survivors.rest else 0.0
    reach = context.params.top_n_sigma * survivors.deviation
    cuts = (survivors.logits[0] - reach * (1.0 + e) for e in (-error, error))
    survivors.keep(agreed(*map(survivors.count, cuts)))


def top_k(survivors: Survivors, context: SamplerContext) -> None:
    """Leaves the k likeliest (Fan et al., 2018)."""
    k = context.params.top_k
    if survivors.rest is None or k < len(survivors.ids) + survivors.rest.n:
        survivors.keep(k)


def typical_p(survivors: Survivors, context: SamplerContext) -> None:
    """Leaves the tokens whose surprise is nearest to the expected one, until their probability is above p
    (Meister et al., 2023). Surprise is a constant less the logit, so that logits are compared."""
    shares = survivors.shares()
    means = expected_levels(survivors, shares)
    sets = {typical_set(survivors, context, shares, mean, total) for mean in means for total in shares.totals}
    if len(sets) > 1:
        raise NeedsAllLogits
    survivors.choose(sets.pop())


def expected_levels(survivors: Survivors, shares: TokenWeights) -> tuple[float, float]:
    """The least and the most that the mean of logit - first logit can be.

    For n numbers that sum to s, the sum of x log x is s log(s / n) at least, and s times the log of the
    greatest at most.
    """
    listed = fsum(w * level for w, level in zip(shares.weights, survivors.levels, strict=True))
    if survivors.rest is None:
        return listed / shares.totals[0], listed / shares.totals[0]
    (least, most), n, bound = shares.rest, survivors.rest.n, survivors.bound
    s = min(most, n * exp(-1.0))  # where s log(s / n) is least
    low = listed + (s * log(s / n) if s > 0.0 else 0.0)
    high = listed + max(least * bound, most * bound)
    return min(low / total for total in shares.totals), max(high / total for total in shares.totals)


def typical_set(
    survivors: Survivors, context: SamplerContext, shares: TokenWeights, mean: float, total: float
) -> tuple[int, ...]:
    """The places of the tokens nearest to the mean. NeedsAllLogits if one not listed may be as near."""
    p, levels = context.params, survivors.levels
    order = sorted(range(len(levels)), key=lambda i: abs(levels[i] - mean))  # of equals the likelier first
    sums = list(accumulate(shares.weights[i] for i in order))
    n = max(bisect_right(sums, p.typical_p * total) + 1, p.min_keep)
    if survivors.rest and (n > len(order) or mean - survivors.bound <= abs(levels[order[n - 1]] - mean)):
        raise NeedsAllLogits
    return tuple(sorted(order[:n]))


def top_p(survivors: Survivors, context: SamplerContext) -> None:
    """Leaves the likeliest tokens until their probability is p (Holtzman et al., 2020)."""
    shares, p = survivors.shares(), context.params
    sums = list(accumulate(shares.weights))
    n = agreed(*(bisect_left(sums, p.top_p * total) for total in shares.totals)) + 1
    survivors.keep(max(n, p.min_keep))


def min_p(survivors: Survivors, context: SamplerContext) -> None:
    """Leaves tokens that are at least p times as likely as the likeliest (Nguyen et al., 2024)."""
    n = survivors.count(survivors.logits[0] + log(context.params.min_p))
    survivors.keep(max(n, context.params.min_keep))


def xtc(survivors: Survivors, context: SamplerContext) -> None:
    """Exclude top choices (p-e-w, 2024): at times drops all tokens that reach a threshold but the least
    likely of them."""
    p = context.params
    if context.noise.uniform(PURPOSE_XTC) >= p.xtc_probability:
        return
    cuts = (survivors.logits[0] + log_of(p.xtc_threshold * total) for total in survivors.shares().totals)
    n = agreed(*map(survivors.count, cuts)) - 1
    if n > 0 and survivors.has_beyond(n, p.min_keep):
        survivors.drop(n)


def temperature(survivors: Survivors, context: SamplerContext) -> None:
    """Divides the logits by it; 0 leaves the likeliest token."""
    p = context.params
    by = dynamic_temperature(survivors, p) if p.dynatemp_range else p.temperature
    if by:
        survivors.divide(by)
    else:
        survivors.keep(1)


def dynamic_temperature(survivors: Survivors, p: SamplingValues) -> float:
    """From temperature - range to temperature + range, the higher the less sure the model is: by the entropy
    as a share of what equal tokens would have, to the power of `dynatemp_exponent` (as in llama.cpp)."""
    if survivors.rest:
        raise NeedsAllLogits  # two temperatures however close may draw two tokens
    if len(survivors.ids) == 1:
        return 1.0
    shares = survivors.shares()
    entropy = log(shares.totals[0]) - expected_levels(survivors, shares)[0]
    share = min(max(entropy / log(len(survivors.ids)), 0.0), 1.0)
    least, most = max(p.temperature - p.dynatemp_range, 0.0), p.temperature + p.dynatemp_range
    return max(least + (most - least) * share**p.dynatemp_exponent, LEAST_DYNAMIC)


def mirostat(survivors: Survivors, context: SamplerContext) -> None:
    """Leaves so many tokens that surprise stays near a target (Basu et al., 2021). Each draw moves `mu`."""
    MIROSTATS[context.params.mirostat](survivors, context)


def mirostat_1(survivors: Survivors, context: SamplerContext) -> None:
    """As many as a law of Zipf, fitted to the likeliest tokens, wants."""
    m = min(MIROSTAT_M, len(survivors.ids))
    if survivors.rest and survivors.n_settled < MIROSTAT_M:
        raise NeedsAllLogits
    k = zipf_k(zipf_exponent(survivors.logits[:m]), context.mu, context.vocab_size)
    survivors.keep(k if survivors.rest else min(k, len(survivors.ids)))


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


def mirostat_2(survivors: Survivors, context: SamplerContext) -> None:
    """Those whose surprise is at most mu, one at least."""
    cuts = (survivors.logits[0] + log(total) - context.mu * LN_2 for total in survivors.shares().totals)
    survivors.keep(max(agreed(*map(survivors.count, cuts)), 1))


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

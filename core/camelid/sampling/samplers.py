"""All samplers: each is a function that drops tokens or changes logits, and a row of `SAMPLERS`."""

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
from camelid.sampling.survivors import NeedsAllLogits, Survivors, TokenWeights, log_of, unanimous
from camelid.sampling.values import SamplerContext, SamplingValues

MIROSTAT_M = 100  # likeliest tokens that estimate the exponent of Zipf's law, as in llama.cpp
DEVIATION_ERROR = 1e-3  # maximum relative error of a device's standard deviation
MIN_DYNAMIC = 1e-6  # below, logits / temperature exceed the noise by so much that rounding removes it
LN_2 = log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """One sampler: its options with their checks, and its function.

    `is_active` is False if the option values make the sampler a no-op. `keeps_first` is True if the likeliest
    token always survives, so that the sampler is a no-op before greedy.
    """

    options: Mapping[str, Check]
    is_active: Callable[[SamplingValues], bool]
    apply: Callable[[Survivors, SamplerContext], None]
    keeps_first: bool = False


def logit_bias(survivors: Survivors, context: SamplerContext) -> None:
    """Adds a bias to the logits of some tokens; -inf bans a token."""
    survivors.alter({i: partial(lowered, -bias) for i, bias in context.params.logit_bias})


def top_n_sigma(survivors: Survivors, context: SamplerContext) -> None:
    """Keeps logits of at least max - n * standard deviation (Tang et al., 2024)."""
    error = DEVIATION_ERROR if survivors.unlisted else 0.0
    reach = context.params.top_n_sigma * survivors.deviation
    cuts = (survivors.logits[0] - reach * (1.0 + e) for e in (-error, error))
    survivors.keep(unanimous(*map(survivors.count, cuts)))


def top_k(survivors: Survivors, context: SamplerContext) -> None:
    """Keeps the k likeliest tokens (Fan et al., 2018)."""
    k = context.params.top_k
    if survivors.unlisted is None or k < len(survivors.ids) + survivors.unlisted.n:
        survivors.keep(k)


def typical_p(survivors: Survivors, context: SamplerContext) -> None:
    """Keeps the tokens whose surprise is nearest to its mean, until their probability exceeds p.

    Meister et al., 2023. Surprise is a constant minus the logit, so logits are compared.
    """
    weights = survivors.token_weights()
    means = mean_logit_bounds(survivors, weights)
    sets = {
        typical_set(survivors, context, weights, mean, total) for mean in means for total in weights.totals
    }
    if len(sets) > 1:
        raise NeedsAllLogits
    survivors.choose(sets.pop())


def mean_logit_bounds(survivors: Survivors, weights: TokenWeights) -> tuple[float, float]:
    """Lower and upper bound on the weighted mean of the relative logits.

    For n numbers x with sum s, the sum of x log x is at least s log(s / n) and at most s log(max x).
    """
    listed = fsum(w * logit for w, logit in zip(weights.weights, survivors.relative_logits, strict=True))
    if survivors.unlisted is None:
        return listed / weights.totals[0], listed / weights.totals[0]
    (least, most), n, bound = weights.unlisted, survivors.unlisted.n, survivors.relative_bound
    s = min(most, n * exp(-1.0))  # s log(s / n) has its minimum there
    low = listed + (s * log(s / n) if s > 0.0 else 0.0)
    high = listed + max(least * bound, most * bound)
    return min(low / total for total in weights.totals), max(high / total for total in weights.totals)


def typical_set(
    survivors: Survivors, context: SamplerContext, weights: TokenWeights, mean: float, total: float
) -> tuple[int, ...]:
    """Indices of the tokens nearest to the mean.

    Raises NeedsAllLogits if an unlisted token may be as near.
    """
    p, logits = context.params, survivors.relative_logits
    order = sorted(range(len(logits)), key=lambda i: abs(logits[i] - mean))  # stable: ties by likelihood
    sums = list(accumulate(weights.weights[i] for i in order))
    n = max(bisect_right(sums, p.typical_p * total) + 1, p.min_keep)
    if survivors.unlisted and (
        n > len(order) or mean - survivors.relative_bound <= abs(logits[order[n - 1]] - mean)
    ):
        raise NeedsAllLogits
    return tuple(sorted(order[:n]))


def top_p(survivors: Survivors, context: SamplerContext) -> None:
    """Keeps the likeliest tokens until their probability reaches p (Holtzman et al., 2020)."""
    weights, p = survivors.token_weights(), context.params
    sums = list(accumulate(weights.weights))
    n = unanimous(*(bisect_left(sums, p.top_p * total) for total in weights.totals)) + 1
    survivors.keep(max(n, p.min_keep))


def min_p(survivors: Survivors, context: SamplerContext) -> None:
    """Keeps tokens at least p times as likely as the likeliest (Nguyen et al., 2024)."""
    n = survivors.count(survivors.logits[0] + log(context.params.min_p))
    survivors.keep(max(n, context.params.min_keep))


def xtc(survivors: Survivors, context: SamplerContext) -> None:
    """Exclude top choices (p-e-w, 2024): drops all tokens above a threshold but the least likely of them.

    It applies with probability `xtc_probability`.
    """
    p = context.params
    if context.noise.uniform(PURPOSE_XTC) >= p.xtc_probability:
        return
    cuts = (
        survivors.logits[0] + log_of(p.xtc_threshold * total) for total in survivors.token_weights().totals
    )
    n = unanimous(*map(survivors.count, cuts)) - 1
    if n > 0 and survivors.has_after(n, p.min_keep):
        survivors.drop(n)


def temperature(survivors: Survivors, context: SamplerContext) -> None:
    """Divides the logits by the temperature; temperature 0 keeps the likeliest token."""
    p = context.params
    t = dynamic_temperature(survivors, p) if p.dynatemp_range else p.temperature
    if t:
        survivors.divide(t)
    else:
        survivors.keep(1)


def dynamic_temperature(survivors: Survivors, p: SamplingValues) -> float:
    """A temperature from `temperature` - range to `temperature` + range that grows with the entropy.

    The position in the range is (entropy / maximum entropy) ** `dynatemp_exponent`, as in llama.cpp.
    """
    if survivors.unlisted:
        raise NeedsAllLogits  # temperatures that differ by rounding may draw different tokens
    if len(survivors.ids) == 1:
        return 1.0
    weights = survivors.token_weights()
    entropy = log(weights.totals[0]) - mean_logit_bounds(survivors, weights)[0]
    relative = min(max(entropy / log(len(survivors.ids)), 0.0), 1.0)
    least, most = max(p.temperature - p.dynatemp_range, 0.0), p.temperature + p.dynatemp_range
    return max(least + (most - least) * relative**p.dynatemp_exponent, MIN_DYNAMIC)


def mirostat(survivors: Survivors, context: SamplerContext) -> None:
    """Keeps surprise near a target (Basu et al., 2021); each draw updates `mu`."""
    MIROSTATS[context.params.mirostat](survivors, context)


def mirostat_1(survivors: Survivors, context: SamplerContext) -> None:
    """Mirostat 1: keeps k tokens, with k from Zipf's law fitted to the likeliest tokens."""
    m = min(MIROSTAT_M, len(survivors.ids))
    if survivors.unlisted and survivors.n_certain < MIROSTAT_M:
        raise NeedsAllLogits
    k = zipf_k(zipf_exponent(survivors.logits[:m]), context.mu, context.vocab_size)
    survivors.keep(k if survivors.unlisted else min(k, len(survivors.ids)))


def zipf_exponent(logits: Sequence[float]) -> float:
    """The exponent s of p(rank) ~ rank ** -s, by least squares over neighbouring ranks."""
    ratios = [log((i + 2) / (i + 1)) for i in range(len(logits) - 1)]
    falls = [a - b for a, b in pairwise(logits)]
    squares = fsum(t * t for t in ratios)
    return fsum(t * b for t, b in zip(ratios, falls, strict=True)) / squares if squares else 1.0


def zipf_k(s: float, mu: float, n: int) -> int:
    """k = (e * 2^mu / (1 - n^-e)) ^ (1 / s) for e = s - 1, from 1 to n; in logs, as 2^mu may overflow."""
    e, log_n = s - 1.0, log(n)
    log_ratio = log(e / -expm1(-e * log_n)) if abs(e * log_n) > 1e-9 else -log(log_n or 1.0)
    exponent = (log_ratio + mu * LN_2) / max(s, 1e-9)
    return n if exponent >= log_n else max(int(exp(exponent)), 1)


def mirostat_2(survivors: Survivors, context: SamplerContext) -> None:
    """Mirostat 2: keeps the tokens with a surprise of at most mu, at least one token."""
    cuts = (
        survivors.logits[0] + log(total) - context.mu * LN_2 for total in survivors.token_weights().totals
    )
    survivors.keep(max(unanimous(*map(survivors.count, cuts)), 1))


MIROSTATS = {1: mirostat_1, 2: mirostat_2}
PROBABILITY = number(0.0, 1.0)
LAST_N = Check("an integer from 0 on, or -1 for all", integer(-1).test)
TEMPERATURES = (0.01, 100.0)  # range besides 0; below 0.01 logits / temperature overflows float32

# Name in an order -> sampler. Option ranges keep logits within the precision of float32.
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
        options={"typical_p": PROBABILITY},
        is_active=lambda p: p.typical_p < 1.0,
        apply=typical_p,
    ),
    "top_p": Sampler(
        options={"top_p": PROBABILITY},
        is_active=lambda p: p.top_p < 1.0,
        apply=top_p,
        keeps_first=True,
    ),
    "min_p": Sampler(
        options={"min_p": PROBABILITY},
        is_active=lambda p: p.min_p > 0.0,
        apply=min_p,
        keeps_first=True,
    ),
    "xtc": Sampler(
        options={"xtc_probability": PROBABILITY, "xtc_threshold": PROBABILITY},
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

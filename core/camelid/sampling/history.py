"""Samplers that look back: penalties on tokens that came before, and DRY on what repeats a longer passage."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import log

from camelid.sampling.survivors import LogitChange, Survivors
from camelid.sampling.values import SamplerContext

LOG_F32_MAX = 88.7228391  # log of the largest float32: DRY's penalty stops growing there, as in llama.cpp


def penalties(survivors: Survivors, context: SamplerContext) -> None:
    """Lowers the last `repeat_last_n` tokens: divides a positive logit by `repeat_penalty` (Keskar et al.,
    2019), multiplies another, then subtracts `frequency_penalty` each time and `presence_penalty` once."""
    p = context.params
    counts = Counter(window(context.history, p.repeat_last_n))
    survivors.alter(
        {
            i: partial(penalized, p.repeat_penalty, n * p.frequency_penalty + p.presence_penalty)
            for i, n in counts.items()
        }
    )


def penalized(factor: float, less: float, logit: float) -> float:
    return (logit / factor if logit > 0.0 else logit * factor) - less


def dry(survivors: Survivors, context: SamplerContext) -> None:
    """Don't repeat yourself (p-e-w, 2024): a token that would make the text end as an earlier passage does,
    where n tokens before it are equal already, loses multiplier * base ** (n - allowed_length)."""
    p = context.params
    recent = window(context.history, p.dry_penalty_last_n)
    limit = since_breaker([context.token_bytes(i) for i in recent], context.breakers)
    survivors.alter(
        {i: dry_change(context, n) for i, n in continued(recent, limit).items() if dries(context, i, n)}
    )


def dries(context: SamplerContext, token_id: int, n: int) -> bool:
    """Whether a token is penalized; one that holds a breaker never is."""
    text = context.token_bytes(token_id)
    return n >= context.params.dry_allowed_length and not any(breaker in text for breaker in context.breakers)


def dry_change(context: SamplerContext, n: int) -> LogitChange:
    p = context.params
    over = n - p.dry_allowed_length
    if p.dry_base > 1.0:
        over = min(over, int(LOG_F32_MAX / log(p.dry_base)))
    return partial(lowered, p.dry_multiplier * p.dry_base**over)


def lowered(less: float, logit: float) -> float:
    return logit - less


def window(history: Sequence[int], last_n: int) -> Sequence[int]:
    """The last tokens; all of them for -1."""
    return history[-last_n:] if last_n > 0 else history if last_n < 0 else ()


def since_breaker(pieces: Sequence[bytes], breakers: Sequence[bytes]) -> int:
    """So many of the last tokens came after the end of the last breaker."""
    text = b"".join(pieces)
    end = max((at + len(breaker) for breaker in breakers if (at := text.rfind(breaker)) >= 0), default=0)
    starts = list(accumulate(map(len, pieces), initial=0))
    return len(pieces) - bisect_left(starts, end, hi=len(pieces))


def continued(recent: Sequence[int], limit: int) -> dict[int, int]:
    """Token -> the longest passage before an earlier one of it that equals the text's end, up to `limit`."""
    backwards = recent[::-1]
    longest: dict[int, int] = {}
    for token_id, n in zip(backwards, prefix_matches(backwards)[1:], strict=False):
        longest[token_id] = max(longest.get(token_id, 0), min(n, limit))
    return longest


def prefix_matches(ids: Sequence[int]) -> list[int]:
    """For each k, how many ids from k on equal those from 0 on: the Z-algorithm (Gusfield, 1997), linear."""
    found, left, right = [len(ids)] * len(ids), 0, 0
    for k in range(1, len(ids)):
        n = min(right - k, found[k - left]) if k < right else 0
        while k + n < len(ids) and ids[n] == ids[k + n]:
            n += 1
        found[k] = n
        if k + n > right:
            left, right = k, k + n
    return found

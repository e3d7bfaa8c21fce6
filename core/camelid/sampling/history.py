"""Samplers that read the history: penalties on earlier tokens, and DRY on repeated passages."""

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
    """Lowers the logits of the last `repeat_last_n` tokens.

    A positive logit is divided by `repeat_penalty` (Keskar et al., 2019), any other is multiplied by it; then
    `frequency_penalty` is subtracted once per occurrence and `presence_penalty` once.
    """
    p = context.params
    counts = Counter(window(context.history, p.repeat_last_n))
    survivors.alter(
        {
            i: partial(penalized, p.repeat_penalty, n * p.frequency_penalty + p.presence_penalty)
            for i, n in counts.items()
        }
    )


def penalized(factor: float, less: float, logit: float) -> float:
    """The logit after `repeat_penalty` and the subtracted penalties."""
    return (logit / factor if logit > 0.0 else logit * factor) - less


def dry(survivors: Survivors, context: SamplerContext) -> None:
    """Penalizes repeated passages: "Don't repeat yourself" (p-e-w, 2024).

    A token that extends a repetition of n tokens loses multiplier * base ** (n - allowed_length).
    """
    p = context.params
    recent = window(context.history, p.dry_penalty_last_n)
    limit = n_since_breaker([context.token_bytes(i) for i in recent], context.breakers)
    survivors.alter(
        {
            i: dry_change(context, n)
            for i, n in repetition_lengths(recent, limit).items()
            if is_dry_penalized(context, i, n)
        }
    )


def is_dry_penalized(context: SamplerContext, token_id: int, n: int) -> bool:
    """True if the token extends a long enough repetition of n tokens and contains no breaker."""
    text = context.token_bytes(token_id)
    return n >= context.params.dry_allowed_length and not any(breaker in text for breaker in context.breakers)


def dry_change(context: SamplerContext, n: int) -> LogitChange:
    p = context.params
    excess = n - p.dry_allowed_length
    if p.dry_base > 1.0:
        excess = min(excess, int(LOG_F32_MAX / log(p.dry_base)))
    return partial(lowered, p.dry_multiplier * p.dry_base**excess)


def lowered(less: float, logit: float) -> float:
    return logit - less


def window(history: Sequence[int], last_n: int) -> Sequence[int]:
    """The last `last_n` tokens; all tokens for -1."""
    return history[-last_n:] if last_n > 0 else history if last_n < 0 else ()


def n_since_breaker(pieces: Sequence[bytes], breakers: Sequence[bytes]) -> int:
    """The number of tokens after the last breaker."""
    text = b"".join(pieces)
    end = max((at + len(breaker) for breaker in breakers if (at := text.rfind(breaker)) >= 0), default=0)
    starts = list(accumulate(map(len, pieces), initial=0))
    return len(pieces) - bisect_left(starts, end, hi=len(pieces))


def repetition_lengths(recent: Sequence[int], limit: int) -> dict[int, int]:
    """Token id -> length of the longest repetition that the token would extend, up to `limit`.

    The repetition is a passage before an earlier occurrence of the token that equals the end of `recent`.
    """
    backwards = recent[::-1]
    longest: dict[int, int] = {}
    for token_id, n in zip(backwards, prefix_matches(backwards)[1:], strict=False):
        longest[token_id] = max(longest.get(token_id, 0), min(n, limit))
    return longest


def prefix_matches(ids: Sequence[int]) -> list[int]:
    """For each k, the length of the common prefix of ids[k:] and ids.

    The Z-algorithm (Gusfield, 1997), in linear time.
    """
    lengths, left, right = [len(ids)] * len(ids), 0, 0
    for k in range(1, len(ids)):
        n = min(right - k, lengths[k - left]) if k < right else 0
        while k + n < len(ids) and ids[n] == ids[k + n]:
            n += 1
        lengths[k] = n
        if k + n > right:
            left, right = k, k + n
    return lengths

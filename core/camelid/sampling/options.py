"""The sampling options of a request: names, types and meanings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class SamplingOptions(TypedDict, total=False):
    """How an answer is drawn. The defaults are what the model's file recommends, else llama.cpp's.

    `temperature` 0 is greedy; it moves by up to `dynatemp_range` with the entropy's share to the power of
    `dynatemp_exponent`. These leave tokens to draw from: the `top_k` likeliest (0: all), the likeliest up
    to probability `top_p`, those at least `min_p` times as likely as the first, the most typical up to
    `typical_p` (1: off), logits within `top_n_sigma` deviations of the greatest (-1: off); `min_keep`
    tokens stay. `xtc_probability` is how often tokens above `xtc_threshold` are left out but the last.
    `repeat_penalty` (1: off), `frequency_penalty` and `presence_penalty` lower the last `repeat_last_n`
    tokens (-1: all). `dry_multiplier` (0: off) lowers what prolongs a repetition of over
    `dry_allowed_length` tokens, by `dry_base` to the power of the excess, looking back `dry_penalty_last_n`
    tokens, but not past `dry_sequence_breakers`. `mirostat` 1 or 2 keeps surprise near `mirostat_tau` bits
    at the rate `mirostat_eta`, in place of all samplers but temperature. `logit_bias` maps token ids to
    what is added to their logits; False bans one. `order` names the samplers to run: a list, or
    "temperature-first". `logprobs` asks for so many alternatives with each token. Without a `seed` one is
    drawn.
    """

    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    min_keep: int
    xtc_probability: float
    xtc_threshold: float
    repeat_penalty: float
    repeat_last_n: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    logit_bias: Mapping[int, float | Literal[False]]
    order: str | Sequence[str]
    logprobs: int | bool
    seed: int | None

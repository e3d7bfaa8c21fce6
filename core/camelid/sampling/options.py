"""The sampling options of a request: names, types and meanings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class SamplingOptions(TypedDict, total=False):
    """Sampling options. Defaults are the recommendations of the model's file, else llama.cpp's defaults.

    Temperature: `temperature` 0 is greedy. With `dynatemp_range` it varies by up to this range, by the
    relative entropy to the power of `dynatemp_exponent`.

    Truncation: `top_k` likeliest tokens (0: all); likeliest tokens up to probability `top_p`; tokens at least
    `min_p` times as likely as the likeliest; most typical tokens up to `typical_p` (1: off); logits within
    `top_n_sigma` standard deviations of the greatest (-1: off). `min_keep` tokens always stay. With
    probability `xtc_probability`, all tokens above `xtc_threshold` but the least likely of them are dropped.

    Penalties: `repeat_penalty` (1: off), `frequency_penalty` and `presence_penalty` lower the last
    `repeat_last_n` tokens (-1: all). `dry_multiplier` (0: off) lowers tokens that extend a repetition of more
    than `dry_allowed_length` tokens, by `dry_base` to the power of the excess, within the last
    `dry_penalty_last_n` tokens and after the last of `dry_sequence_breakers`.

    `mirostat` 1 or 2 keeps surprise near `mirostat_tau` bits at learning rate `mirostat_eta`, and replaces
    all samplers but temperature. `logit_bias` maps token ids to numbers added to their logits; False bans a
    token. `order` is a list of sampler names, or "temperature-first". `logprobs` is the number of
    alternatives returned with each token. `seed` None draws a random seed.
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

"""Inputs of samplers: the option values of a request, and the context of one draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from camelid.sampling.drawing import DrawNoise

DEFAULT_ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)


@dataclass(frozen=True, kw_only=True)
class SamplingValues:
    """All sampling options with llama.cpp's defaults; `options.SamplingOptions` documents each option."""

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    min_keep: int = 0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    order: tuple[str, ...] = DEFAULT_ORDER
    logprobs: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerContext:
    """The input of samplers at one draw.

    `history` are the token ids of prompt and answer, `breakers` the bytes of `dry_sequence_breakers`; `mu` is
    mirostat's bound on surprisal, in bits.
    """

    params: SamplingValues
    noise: DrawNoise
    history: Sequence[int]
    vocab_size: int
    mu: float
    token_bytes: Callable[[int], bytes]
    breakers: Sequence[bytes]

"""`generation_settings` of llama.cpp's replies: the parameters with which an answer was drawn."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf
from typing import Any

from camelid.engine.adapters import RequestAdapter
from camelid.engine.request import Request
from camelid.requests.build import checked_stops
from camelid.sampling.params import SamplingParams
from camelid.server.faces.common import Body
from camelid.server.fields.sampling import RANDOM_SEED

# llama.cpp's name of a parameter -> the field of SamplingParams.
NUMBERS = {
    name: name
    for name in (
        "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma",
        "xtc_probability", "xtc_threshold", "typical_p", "repeat_last_n", "repeat_penalty",
        "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length",
        "dry_penalty_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "min_keep",
    )
} | {"n_probs": "logprobs"}  # fmt: skip
# Our name of a sampler -> llama.cpp's, where they differ.
SAMPLER_NAMES = {"typical_p": "typ_p"}

# llama.cpp's parameters of features that are missing, at their values for "off".
ABSENT: Body = {
    "adaptive_target": -1.0, "adaptive_decay": 0.9, "backend_sampling": False, "generation_prompt": "",
    "speculative.types": "none",
}  # fmt: skip


def sampling_settings(sampling: SamplingParams) -> Body:
    """The sampling parameters by llama.cpp's names."""
    numbers = {name: getattr(sampling, field) for name, field in NUMBERS.items()}
    return numbers | {
        "seed": RANDOM_SEED if sampling.seed is None else sampling.seed,
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "logit_bias": [{"bias": finite(bias), "token": i} for i, bias in sampling.logit_bias],
        "samplers": [SAMPLER_NAMES.get(name, name) for name in sampling.order],
    }


def adapter_scales(adapter: RequestAdapter | None) -> list[Body]:
    """The numbers and scales of a request's adapters."""
    return [{"id": part.id, "scale": part.scale} for part in adapter.parts] if adapter else []


def finite(bias: float) -> float | None:
    """A bias as JSON has it: a banned token's is null."""
    return None if isinf(bias) else bias


def generation_settings(request: Request, options: Mapping[str, Any], own: Mapping[str, Any]) -> Body:
    """All parameters of a request; `own` are the fields that the endpoint itself reads."""
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    return sampling_settings(request.sampling) | {
        "n_predict": n_predict,
        "max_tokens": n_predict,
        "n_keep": max(own["n_keep"], request.n_keep) if "n_keep" in own else 0,  # without our opening token
        "n_discard": own.get("n_discard", 0),
        "ignore_eos": bool(own.get("ignore_eos") or options.get("ignore_eos")),
        "stop": list(checked_stops(options.get("stop", ()))),
        "stream": bool(own.get("stream")),
        "grammar": options.get("grammar") or "",
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "reasoning_format": own.get("reasoning_format", "none"),
        "reasoning_in_content": False,
        "timings_per_token": bool(own.get("timings_per_token")),
        "post_sampling_probs": bool(own.get("post_sampling_probs")),
        "cache_prompt": request.reuses,
        "lora": adapter_scales(request.adapter),
        **ABSENT,
    }

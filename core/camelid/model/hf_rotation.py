"""GGUF metadata of rotary position embeddings from config.json, and their factors as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from camelid.formats.settings import Config
from camelid.model.hf_settings import SLIDING, HfSettings, Pairs, unsupported
from camelid.model.rope import yarn_magnitude

STILL = 1e30  # divisor of the frequency of a pair that does not turn, as in llama.cpp's files


def rotation(settings: HfSettings) -> Pairs:
    if not settings.arch.rope_style:
        return
    yield "rope.freq_base", settings.theta
    yield "rope.dimension_count", settings.rope_dim
    if settings.arch.has_local_rope:
        yield "rope.freq_base_swa", _local_theta(settings)
    yield from _scaling(settings)


def _local_theta(settings: HfSettings) -> float:
    """The rotation base of window layers, which no supported model scales."""
    local = settings.config.section("rope_parameters").section(SLIDING)
    kind = local.text("rope_type", "default")
    if kind != "default":
        raise unsupported(f"rope_parameters.{SLIDING}.rope_type", kind, ("default",))
    stated = settings.config.number(
        "rope_local_base_freq", settings.arch.local_theta or settings.theta, above=0.0
    )
    return local.number("rope_theta", stated, above=0.0)


def _rope_type(settings: HfSettings) -> str:
    kind = settings.rope.text("rope_type", "") or settings.rope.text("type", "default")
    known = ("default", "mrope", "dynamic", "linear", "yarn", "longrope", "su", "llama3", "proportional")
    if kind not in known:
        raise unsupported("rope_type", kind, known)
    # Without alpha, dynamic scales beyond context_length alone, the longest context of a loaded model.
    if kind == "dynamic" and settings.rope.has("alpha") and "rope.scaling.alpha" not in settings.row.keys:
        raise unsupported("alpha", settings.rope.number("alpha"), ())
    return {"su": "longrope", "dynamic": "default", "mrope": "default"}.get(kind, kind)


def _scaling(settings: HfSettings) -> Pairs:
    kind, rope = _rope_type(settings), settings.rope
    if kind in ("default", "llama3", "proportional"):
        return
    yield "rope.scaling.type", kind
    if kind == "longrope":
        yield "rope.scaling.original_context_length", _original_context(settings)
        yield "rope.scaling.attn_factor", _longrope_magnitude(settings)
        return
    factor = rope.number("factor", above=0.0)
    yield "rope.scaling.factor", factor
    if kind == "yarn":
        yield from _yarn(settings, factor)


def _yarn(settings: HfSettings, factor: float) -> Pairs:
    rope = settings.rope
    if rope.flag("truncate", True) != settings.arch.rounds_ramp:
        raise unsupported("truncate", rope.flag("truncate", True), (settings.arch.rounds_ramp,))
    yield "rope.scaling.original_context_length", _original_context(settings)
    yield "rope.scaling.yarn_beta_fast", rope.number("beta_fast", 32.0, above=0.0)
    yield "rope.scaling.yarn_beta_slow", rope.number("beta_slow", 1.0, above=0.0)
    base, attention_factor = yarn_magnitude(factor), _attention_factor(rope, factor)
    if "mla" in settings.arch.mixers and rope.number("mscale_all_dim", 0.0):
        yield "rope.scaling.yarn_log_multiplier", 0.1 * rope.number("mscale_all_dim")
        base = 1.0
    if attention_factor != base:  # GGUF's attn_factor multiplies YaRN's magnitude
        yield "rope.scaling.attn_factor", attention_factor / base


def _attention_factor(rope: Config, factor: float) -> float:
    """The stated multiplier of cos and sin, a ratio of two magnitudes (DeepSeek), or YaRN's magnitude."""
    mscales = [rope.number(key, 0.0) for key in ("mscale", "mscale_all_dim")]
    own, all_dim = (yarn_magnitude(factor, mscale) for mscale in mscales)
    default = own / all_dim if all(mscales) else yarn_magnitude(factor)
    return rope.number("attention_factor", default)


def _original_context(settings: HfSettings) -> int:
    key = "original_max_position_embeddings"
    stated = settings.rope.count(key, settings.count("context_length"))
    return settings.config.count(key, stated)


def _longrope_magnitude(settings: HfSettings) -> float:
    """sqrt(1 + ln(factor) / ln(original context)) (arXiv 2402.13753)."""
    original = _original_context(settings)
    factor = settings.rope.number("factor", settings.count("context_length") / original, above=0.0)
    is_scaled = factor > 1.0 and original > 1
    default = math.sqrt(1.0 + math.log(factor) / math.log(original)) if is_scaled else 1.0
    stated = {settings.rope.number(key, default) for key in ("long_mscale", "short_mscale")}  # Phi 3.5 MoE
    if len(stated) > 1:
        raise unsupported("long_mscale", settings.rope.number("long_mscale", default), ("short_mscale",))
    return settings.rope.number("attention_factor", stated.pop())


def rope_factors(settings: HfSettings) -> dict[str, Sequence[float]]:
    """RoPE factors by tensor name: GGUF stores them as tensors, config.json as settings."""
    if not settings.arch.rope_style:
        return {}
    kind = _rope_type(settings)
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_factors(settings)}
    if kind == "proportional":
        return {"rope_freqs.weight": _proportional_factors(settings)}
    if kind == "longrope":
        names = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
        return {name: settings.rope.numbers(key) or [0.0] for name, key in names.items()}
    return {}


def _proportional_factors(settings: HfSettings) -> list[float]:
    """Divisors of the frequencies: `factor` for the first share of the pairs; the others stand still."""
    rope, n_pairs = settings.rope, settings.head_dim // 2
    share = rope.number("partial_rotary_factor", 1.0, above=0.0, most=1.0)
    n_turned = int(share * settings.head_dim // 2)
    return [rope.number("factor", 1.0, above=0.0)] * n_turned + [STILL] * (n_pairs - n_turned)


def _llama3_factors(settings: HfSettings) -> list[float]:
    """Divisors of the frequencies: `factor` for slow pairs, 1 for fast ones, a blend between (Llama 3.1)."""
    rope, original = settings.rope, _original_context(settings)
    factor = rope.number("factor", above=0.0)
    low, high = rope.number("low_freq_factor", above=0.0), rope.number("high_freq_factor", above=0.0)
    turns = [
        original * settings.theta ** (-2.0 * i / settings.rope_dim) / (2.0 * math.pi)
        for i in range(settings.rope_dim // 2)
    ]
    shares = [min(max((n - low) / max(high - low, 1e-9), 0.0), 1.0) for n in turns]  # 1: unscaled
    return [1.0 / ((1.0 - share) / factor + share) for share in shares]

"""GGUF adapters of llama.cpp: `NAME.weight.lora_a` and `.lora_b` beside the metadata of an adapter.

The scale of a pair is `adapter.lora.alpha` / rank, or 1 for an alpha of 0, as llama.cpp computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NoReturn

from camelid.errors import UnsupportedModelError, shown
from camelid.formats.adapters.pairs import AdapterFile, Factor, make_pair, pair_up
from camelid.formats.gguf import Gguf
from camelid.formats.source import format_error, located

ENDINGS = (".lora_a", ".lora_b")
TYPE, KIND, ALPHA = "general.type", "adapter.type", "adapter.lora.alpha"
INVOCATION = "adapter.alora.invocation_tokens"
KNOWN = (KIND, ALPHA, INVOCATION, "adapter.lora.task_name", "adapter.lora.prompt_prefix")
MAX_INVOCATION = 1 << 12
MAX_TOKEN = (1 << 31) - 1


def check_type(found: object, path: str) -> None:
    """Raises ModelFormatError for another general.type than that of adapters of any kind."""
    if found != "adapter":
        message = f"{TYPE} is {shown(found)}, but 'adapter' is expected; name a LoRA adapter's file"
        raise format_error(path, message, key=TYPE)


def read_gguf_adapter(header: Gguf) -> AdapterFile:
    """The adapter of a GGUF's header.

    Raises ModelFormatError for a file that is no adapter and factors that do not fit, UnsupportedModelError
    for another kind of adapter, and for settings and tensors that are not supported, by name.
    """
    path = header.path
    _check(header)
    alpha = header.get(ALPHA, float)
    if not math.isfinite(alpha):
        raise format_error(path, f"{ALPHA} is {alpha}, but a finite number is expected", key=ALPHA)
    factors = [Factor(t.name, t.type, t.shape, t.offset) for t in header.tensors.values()]
    found = next((f for f in factors if not f.name.endswith(ENDINGS)), None)
    if found:
        message = f"tensor {found.name} is no factor of LoRA; merge the adapter into its base"
        raise UnsupportedModelError(located(path, message), kind="tensor", name=found.name, path=path)
    pairs = {
        name: make_pair(name, a, b, scale=_scale(alpha, b), path=path)
        for name, (a, b) in pair_up(factors, ENDINGS, path).items()
    }
    return AdapterFile(
        format="gguf",
        path=path,
        pairs=pairs,
        invocation=_invocation(header),
        facts=dict(_facts(header, alpha)),
    )


def _scale(alpha: float, b: Factor) -> float:
    return alpha / b.shape[-1] if alpha else 1.0


def _check(header: Gguf) -> None:
    check_type(header.metadata.get(TYPE), header.path)
    kind = header.get(KIND, str)
    if kind != "lora":
        _refuse(header, KIND, f"{KIND} is {shown(kind)}; supported is lora")
    unknown = sorted(key for key in header.metadata if key.startswith("adapter.") and key not in KNOWN)
    if unknown:
        message = f"{unknown[0]}: an unknown setting, so results may differ; known: {', '.join(KNOWN)}"
        _refuse(header, unknown[0], message)


def _refuse(header: Gguf, name: str, message: str) -> NoReturn:
    raise UnsupportedModelError(located(header.path, message), kind="setting", name=name, path=header.path)


def _invocation(header: Gguf) -> tuple[int, ...]:
    tokens = header.get(INVOCATION, list[int], default=list[int]())
    if len(tokens) > MAX_INVOCATION or not all(0 <= token <= MAX_TOKEN for token in tokens):
        message = f"{INVOCATION}: expected at most {MAX_INVOCATION} token ids, found {len(tokens)} numbers"
        raise format_error(header.path, message, key=INVOCATION)
    return tuple(tokens)


def _facts(header: Gguf, alpha: float) -> Iterator[tuple[str, str]]:
    yield "alpha", f"{alpha:g}"
    yield "scaling", "alpha / rank"
    names: Mapping[str, str] = {
        "general.architecture": "architecture",
        "general.name": "title",
        "general.base_model.0.name": "base",
        "adapter.lora.task_name": "task",
    }
    for key, name in names.items():
        if text := header.get(key, str, default=""):
            yield name, text[:200]

"""The information in a tokenizer.json that its GGUF metadata loses.

A loss means that readers of the GGUF file give other ids for some texts than the directory does. A tokenizer
for which these would be ordinary texts is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from camelid.text.tokenizers.hf.roles import Settings
from camelid.text.tokenizers.hf.values import SPACE, Json, refuse, steps
from camelid.text.tokenizers.hf.vocabulary import Added, Vocabulary, merged

SHOWN = 3  # tokens listed in a message
WAY_OUT = "the directory itself works"


@dataclass(frozen=True, slots=True)
class Published:
    """The source of a conversion: tokenizer.json, its `model`, the small files beside it, the vocabulary."""

    tokenizer: Json
    model: Json
    settings: Settings
    vocab: Vocabulary


@dataclass(frozen=True, slots=True)
class GgufFields:
    """The result of a conversion.

    `fields`: GGUF values by key after tokenizer.ggml., None for an absent key. `losses`: one sentence per
    loss.
    """

    fields: dict[str, object]
    losses: list[str] = field(default_factory=list[str])


def not_in_gguf(what: str, why: str, step: Json) -> NoReturn:
    """Raises UnsupportedModelError: GGUF cannot express the step, or its part `what`."""
    refuse(what, why, step, way_out=f"GGUF cannot express that, but {WAY_OUT}")


def losses_of_bpe(
    of: Published, kind: str, merges: Iterable[tuple[str, str]], prefixed: bool
) -> Iterator[str]:
    """The losses of BPE in GGUF's kind "gpt2" or "llama". `prefixed`: a space is put before each text."""
    added = list(of.vocab.added.values())
    normalizers = [name for name, _ in steps(of.tokenizer, "normalizer", "normalizers")]
    yield from losses_of_added(of)
    if kind == "gpt2" and normalizers:
        yield "GGUF cannot express NFC normalization; text in another form gets other ids"
    if kind == "llama":
        yield from losses_of_spaces(added, merged(merges), prefixed)
        yield from losses_of_metaspace(of.tokenizer)


def losses_of_added(of: Published) -> Iterator[str]:
    """The losses in how added tokens are matched in a text."""
    added = of.vocab.added.values()
    normalizes = any(steps(of.tokenizer, "normalizer", "normalizers"))
    flags = {
        "the spaces beside them (lstrip, rstrip)": [one for one in added if one.lstrip or one.rstrip],
        "whole words only (single_word)": [one for one in added if one.single_word],
        "normalized text (normalized)": [one for one in added if one.normalized and normalizes],
    }
    for what, tokens in flags.items():
        if tokens:
            yield f"GGUF cannot express that added tokens match {what}: {names(tokens)}"


def losses_of_spaces(added: list[Added], by_merges: set[str], prefixed: bool) -> Iterator[str]:
    """The losses of added tokens that contain ▁ or, with `prefixed`, a space.

    Both readers agree on tokens that merges make. A token with spaces is matched before normalization, so it
    differs only where a space is put in front.
    """
    marks = (SPACE, " ") if prefixed else (SPACE,)
    spelled = [one for one in added if not one.is_control and any(mark in one.content for mark in marks)]
    if tokens := [one for one in spelled if one.content.replace(" ", SPACE) not in by_merges]:
        yield f"readers of GGUF treat {SPACE} as a space in added tokens: {names(tokens)}"


def losses_of_metaspace(tokenizer: Json) -> Iterator[str]:
    """The losses in the conditions under which a space is put before a text."""
    schemes = [
        step.get("prepend_scheme", "always")
        for kind, step in steps(tokenizer, "pre_tokenizer", "pretokenizers")
        if kind == "Metaspace"
    ]
    if "first" in schemes:
        yield (
            "GGUF cannot express that a space goes before the start of a text only; readers also put a space "
            "after every control token"
        )
    if schemes and schemes != ["never"]:
        yield f"GGUF cannot express that no space goes before a text that begins with a space or {SPACE}"


def names(tokens: list[Added]) -> str:
    """The first SHOWN tokens, and the number of the others."""
    more = f" and {len(tokens) - SHOWN} more" if len(tokens) > SHOWN else ""
    return ", ".join(repr(one.content[:40]) for one in tokens[:SHOWN]) + more

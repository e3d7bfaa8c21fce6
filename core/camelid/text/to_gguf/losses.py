"""What a GGUF file would not say of a tokenizer.json, although everything else of it can be written.

Readers of the GGUF file then give other ids for some texts than the directory does. Where that would be
ordinary texts, the tokenizer is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from camelid.text.tokenizers.hf.roles import Settings
from camelid.text.tokenizers.hf.values import SPACE, Json, refuse, steps
from camelid.text.tokenizers.hf.vocabulary import Added, Vocabulary, merged

SHOWN = 3  # tokens named in a message
WAY_OUT = "the directory itself works"


@dataclass(frozen=True, slots=True)
class Published:
    """A model's tokenizer.json, the `model` in it, the small files beside it, and the vocabulary of all."""

    tokenizer: Json
    model: Json
    settings: Settings
    vocab: Vocabulary


@dataclass(frozen=True, slots=True)
class Words:
    """`facts`: values by their key after tokenizer.ggml., None for none. `losses`: one sentence each."""

    facts: dict[str, object]
    losses: list[str] = field(default_factory=list[str])


def cannot_say(what: str, why: str, step: Json) -> NoReturn:
    """UnsupportedModelError: this step, or what of it is shown, cannot be written as GGUF."""
    refuse(what, why, step, way_out=f"GGUF has no words for that, but {WAY_OUT}")


def losses_of_bpe(
    of: Published, kind: str, merges: Iterable[tuple[str, str]], prefixed: bool
) -> Iterator[str]:
    """What GGUF's `kind`, "gpt2" or "llama", leaves out; `prefixed`: a space goes before each text."""
    added = list(of.vocab.added.values())
    normalizers = [name for name, _ in steps(of.tokenizer, "normalizer", "normalizers")]
    yield from losses_of_added(of)
    if kind == "gpt2" and normalizers:
        yield "GGUF cannot say that text is normalised to NFC; text in another form gets other ids"
    if kind == "llama":
        yield from losses_of_spaces(added, merged(merges), prefixed)
        yield from losses_of_metaspace(of.tokenizer)


def losses_of_added(of: Published) -> Iterator[str]:
    """How added tokens are found in a text."""
    added = of.vocab.added.values()
    normalizes = any(steps(of.tokenizer, "normalizer", "normalizers"))
    flags = {
        "the spaces beside them (lstrip, rstrip)": [one for one in added if one.lstrip or one.rstrip],
        "whole words only (single_word)": [one for one in added if one.single_word],
        "normalised text (normalized)": [one for one in added if one.normalized and normalizes],
    }
    for what, tokens in flags.items():
        if tokens:
            yield f"GGUF cannot say of added tokens that they match {what}: {names(tokens)}"


def losses_of_spaces(added: list[Added], by_merges: set[str], prefixed: bool) -> Iterator[str]:
    """Tokens that merges make come of spaces in both. Those of spaces alone are found before, but for the
    space that is put in front (`prefixed`)."""
    marks = (SPACE, " ") if prefixed else (SPACE,)
    spelled = [one for one in added if not one.steers and any(mark in one.content for mark in marks)]
    if tokens := [one for one in spelled if one.content.replace(" ", SPACE) not in by_merges]:
        yield f"readers of GGUF take {SPACE} and spaces for the same in added tokens: {names(tokens)}"


def losses_of_metaspace(tokenizer: Json) -> Iterator[str]:
    """When a space goes before a text."""
    schemes = [
        step.get("prepend_scheme", "always")
        for kind, step in steps(tokenizer, "pre_tokenizer", "pretokenizers")
        if kind == "Metaspace"
    ]
    if "first" in schemes:
        yield (
            "GGUF cannot say that a space goes before the start of a text only; readers put one behind every "
            "control token too"
        )
    if schemes and schemes != ["never"]:
        yield f"GGUF cannot say that no space goes before a text that begins with one, or with {SPACE}"


def names(tokens: list[Added]) -> str:
    """The first few of them."""
    more = f" and {len(tokens) - SHOWN} more" if len(tokens) > SHOWN else ""
    return ", ".join(repr(one.content[:40]) for one in tokens[:SHOWN]) + more

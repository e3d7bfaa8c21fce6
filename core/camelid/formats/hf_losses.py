"""What a GGUF file would not say of a tokenizer.json, although everything else of it can be written.

Readers of the GGUF file then give other ids for some texts than the directory does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from camelid.formats.hf_splitting import Splitting
from camelid.text.hf.values import SPACE, Json, steps
from camelid.text.hf.vocabulary import Added, Vocabulary, merged

SHOWN = 3  # tokens named in a message


def losses(
    tokenizer: Json, splitting: Splitting, vocab: Vocabulary, merges: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """One sentence for each thing that is left out."""
    yield from _of_added(list(vocab.added.values()), any(steps(tokenizer, "normalizer", "normalizers")))
    if splitting.model == "gpt2" and tokenizer.get("normalizer") and any(_kinds(tokenizer, "normalizer")):
        yield "GGUF cannot say that text is normalised to NFC; text in another form gets other ids"
    if splitting.model == "llama":
        yield from _of_spaces(list(vocab.added.values()), merged(merges))
    if splitting.model == "llama" and "Metaspace" in _kinds(tokenizer, "pre_tokenizer"):
        yield from _of_metaspace(tokenizer)


def _kinds(tokenizer: Json, key: str) -> list[str]:
    members = "normalizers" if key == "normalizer" else "pretokenizers"
    return [kind for kind, _ in steps(tokenizer, key, members)]


def _of_added(added: list[Added], normalizes: bool) -> Iterator[str]:
    flags = {
        "the spaces beside them (lstrip, rstrip)": [one for one in added if one.lstrip or one.rstrip],
        "whole words only (single_word)": [one for one in added if one.single_word],
        "normalised text (normalized)": [one for one in added if one.normalized and normalizes],
    }
    for what, tokens in flags.items():
        if tokens:
            yield f"GGUF cannot say of added tokens that they match {what}: {_names(tokens)}"


def _of_spaces(added: list[Added], by_merges: set[str]) -> Iterator[str]:
    """Tokens that merges make come of spaces in both."""
    spelled = [one for one in added if SPACE in one.content and not one.steers]
    if tokens := [one for one in spelled if one.content not in by_merges]:
        yield f"added tokens spelled with {SPACE} match spaces as readers of GGUF take them: {_names(tokens)}"


def _names(tokens: list[Added]) -> str:
    more = f" and {len(tokens) - SHOWN} more" if len(tokens) > SHOWN else ""
    return ", ".join(repr(one.content[:40]) for one in tokens[:SHOWN]) + more


def _of_metaspace(tokenizer: Json) -> Iterator[str]:
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
    if schemes != ["never"]:
        yield "GGUF cannot say that no space goes before a text that begins with one"

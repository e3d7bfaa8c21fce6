"""Unigram of a tokenizer.json in GGUF's words: kind "t5".

GGUF says a character map, whether runs of spaces become one, and whether a space goes in front; no more.
Source: huggingface/tokenizers, docs of `normalizers` and `pre_tokenizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from camelid.text.to_gguf.bpe import spaced
from camelid.text.to_gguf.losses import (
    Published,
    Words,
    cannot_say,
    losses_of_added,
    losses_of_metaspace,
    losses_of_spaces,
)
from camelid.text.to_gguf.splitting import metaspace, prepend, row_of
from camelid.text.to_gguf.vocab import filled, token_types
from camelid.text.tokenizers.hf.models import scored
from camelid.text.tokenizers.hf.normalizers import charsmap_bytes
from camelid.text.tokenizers.hf.processors import read_processor
from camelid.text.tokenizers.hf.roles import role_ids
from camelid.text.tokenizers.hf.values import SPACE, Json, count, flag, steps
from camelid.text.tokenizers.unigram import float32
from camelid.text.tokenizers.vocab import NORMAL

SPACES = {"Regex": " {2,}"}
Effects = dict[str, object]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a step says in GGUF's terms, and the sentence for what of it GGUF cannot say."""

    facts: Effects = field(default_factory=Effects)
    loss: str = ""


def unigram_words(of: Published) -> Words:
    """The vocabulary with its scores, and what becomes of spaces. UnsupportedModelError, ModelFormatError."""
    effects = [row_of(STEPS, kind)(step) for kind, step in _steps(of.tokenizer)]
    facts = {key: value for effect in effects for key, value in effect.facts.items() if value}
    _check(of, facts)
    unknown = of.vocab.tokens[_unk_id(of.model)]
    types = token_types(of, [], unknown if _steers(of, unknown) else None, flag(of.model, "byte_fallback"))
    values = [score for _, score in scored(of.model)]
    losses = [effect.loss for effect in effects if effect.loss]
    losses += [*_losses_of_spaces(of, facts), *_losses_of_scores(of, values, types), *losses_of_added(of)]
    return Words(_facts(of, facts, types, values), losses)


def _steps(tokenizer: Json) -> list[tuple[str, Json]]:
    return [
        *steps(tokenizer, "normalizer", "normalizers"),
        *steps(tokenizer, "pre_tokenizer", "pretokenizers"),
    ]


def _facts(of: Published, facts: Effects, types: list[int], values: list[float]) -> dict[str, object]:
    tokens = filled(of.vocab)
    return {
        "model": "t5",
        "tokens": spaced(tokens, types),
        "token_type": types,
        "scores": [float32(score) for score in values[: len(tokens)]] + [0.0] * (len(tokens) - len(values)),
        "unknown_token_id": _unk_id(of.model),
        "precompiled_charsmap": facts.get("charsmap"),
        "add_space_prefix": "prefix" in facts,
        "remove_extra_whitespaces": _collapses(facts),
    }


def _collapses(facts: Effects) -> bool:
    return "collapses" in facts or "words" in facts


def _check(of: Published, facts: Effects) -> None:
    """Refuses what would give ordinary texts other ids."""
    if "spaces" not in facts:
        cannot_say("normalizer", f"does not write {SPACE} for spaces, as GGUF's kind 't5' does", {})
    if "words" in facts and "prefix" not in facts:
        cannot_say("pre-tokenizer", f"cuts words that do not begin with {SPACE}", {})
    if "splits_words" in facts and any(SPACE in token.lstrip(SPACE) for token in of.vocab.ids):
        cannot_say("pre-tokenizer", f"cuts words at {SPACE}, but there are tokens that reach over one", {})


def _unk_id(model: Json) -> int:
    if model.get("unk_id") is None:
        cannot_say("Unigram", "has no unknown token, for which readers of GGUF take id 2", model)
    return count(model, "unk_id", 0, sum(1 for _ in scored(model)) - 1)


def _steers(of: Published, token: str | None) -> bool:
    return any(one.content == token and one.steers for one in of.vocab.added.values())


def _losses_of_spaces(of: Published, facts: Effects) -> Iterator[str]:
    yield from losses_of_metaspace(of.tokenizer)
    yield from losses_of_spaces(list(of.vocab.added.values()), set(), "prefix" in facts)
    if not _collapses(facts) and ("left" in facts or "right" in facts):
        yield "GGUF cannot say that spaces at the ends of a text are left out"
    if "collapses" in facts and "words" not in facts and not ("left" in facts and "right" in facts):
        yield "readers of GGUF leave out spaces at the ends of a text, where the directory keeps one"


def _losses_of_scores(of: Published, values: list[float], types: list[int]) -> Iterator[str]:
    if any(float32(score) != score for score in values):
        yield "GGUF holds scores as float32; of cuts that are almost as good another may win"
    normal = [score for score, kind in zip(values, types, strict=False) if kind == NORMAL]
    if min(normal, default=0.0) != min(values, default=0.0):
        yield "the worst score is that of a token that is no text; readers of GGUF look at others"
    if not read_processor(of.tokenizer).after and not role_ids(of.settings, of.vocab, "eos"):
        yield "no token ends a text, for which readers of GGUF take id 1"
    if flag(of.model, "byte_fallback"):
        yield "text that spells a byte token, such as <0x0A>, is that token to the directory only"


def _precompiled(step: Json) -> Effect:
    data = charsmap_bytes(step)
    loss = (
        "readers of GGUF replace the longest strings of the character map, the directory a character at a "
        "time, with its accents if that is short; text with combining characters may get other ids"
    )
    return Effect({"charsmap": list(data)}, loss) if data else Effect()


def _replace(step: Json) -> Effect:
    pattern, content = step.get("pattern"), step.get("content")
    if pattern == SPACES and content in (" ", SPACE):
        return Effect({"collapses": True})
    if pattern == {"String": " "} and content == SPACE:
        return Effect({"spaces": True})
    return _lost("Replace")


def _strip(step: Json) -> Effect:
    left, right = flag(step, "strip_left"), flag(step, "strip_right")
    loss = "GGUF cannot say that whitespace other than spaces is left out at the ends of a text"
    return Effect({"left": left, "right": right}, loss if left or right else "")


def _whitespace_split(_: Json) -> Effect:
    return Effect({"words": True}, "GGUF cannot say that words are cut at whitespace other than spaces")


def _lost(kind: str) -> Effect:
    return Effect(loss=f"GGUF cannot say that text is normalised by {kind}; such text gets other ids")


# Lowercase has no row: ordinary text would get other ids.
STEPS: Mapping[str, Callable[[Json], Effect]] = {
    "Metaspace": lambda step: Effect({**metaspace(step)}),
    "Precompiled": _precompiled,
    "Prepend": lambda step: Effect({**prepend(step)}),
    "Replace": _replace,
    "Strip": _strip,
    "WhitespaceSplit": _whitespace_split,
    "NFC": lambda _: _lost("NFC"),
    "NFD": lambda _: _lost("NFD"),
    "NFKC": lambda _: _lost("NFKC"),
    "NFKD": lambda _: _lost("NFKD"),
    "Nmt": lambda _: _lost("Nmt"),
    "StripAccents": lambda _: _lost("StripAccents"),
}

"""Unigram of a tokenizer.json as GGUF's kind "t5".

GGUF expresses a character map, the collapse of runs of spaces, and a space in front of a text; nothing else.
Source: huggingface/tokenizers, docs of `normalizers` and `pre_tokenizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from camelid.text.to_gguf.bpe import spaced
from camelid.text.to_gguf.losses import (
    GgufFields,
    Published,
    losses_of_added,
    losses_of_metaspace,
    losses_of_spaces,
    not_in_gguf,
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
    """The GGUF fields of a step, and its loss as a sentence ("" for none)."""

    fields: Effects = field(default_factory=Effects)
    loss: str = ""


def unigram_fields(of: Published) -> GgufFields:
    """The vocabulary with its scores, and the handling of spaces.

    Raises UnsupportedModelError, ModelFormatError.
    """
    effects = [row_of(STEPS, kind)(step) for kind, step in _steps(of.tokenizer)]
    fields = {key: value for effect in effects for key, value in effect.fields.items() if value}
    _check(of, fields)
    unknown = of.vocab.tokens[_unk_id(of.model)]
    unknown_control = unknown if _is_control(of, unknown) else None
    types = token_types(of, [], unknown_control, flag(of.model, "byte_fallback"))
    values = [score for _, score in scored(of.model)]
    losses = [effect.loss for effect in effects if effect.loss]
    losses += [*_losses_of_spaces(of, fields), *_losses_of_scores(of, values, types), *losses_of_added(of)]
    return GgufFields(_fields(of, fields, types, values), losses)


def _steps(tokenizer: Json) -> list[tuple[str, Json]]:
    return [
        *steps(tokenizer, "normalizer", "normalizers"),
        *steps(tokenizer, "pre_tokenizer", "pretokenizers"),
    ]


def _fields(of: Published, fields: Effects, types: list[int], values: list[float]) -> dict[str, object]:
    tokens = filled(of.vocab)
    return {
        "model": "t5",
        "tokens": spaced(tokens, types),
        "token_type": types,
        "scores": [float32(score) for score in values[: len(tokens)]] + [0.0] * (len(tokens) - len(values)),
        "unknown_token_id": _unk_id(of.model),
        "precompiled_charsmap": fields.get("charsmap"),
        "add_space_prefix": "prefix" in fields,
        "remove_extra_whitespaces": _collapses(fields),
    }


def _collapses(fields: Effects) -> bool:
    return "collapses" in fields or "words" in fields


def _check(of: Published, fields: Effects) -> None:
    """Refuses steps whose loss would change the ids of ordinary texts."""
    if "spaces" not in fields:
        not_in_gguf("normalizer", f"does not write {SPACE} for spaces, as GGUF's kind 't5' does", {})
    if "words" in fields and "prefix" not in fields:
        not_in_gguf("pre-tokenizer", f"cuts words that do not begin with {SPACE}", {})
    if "splits_words" in fields and any(SPACE in token.lstrip(SPACE) for token in of.vocab.ids):
        not_in_gguf("pre-tokenizer", f"cuts words at {SPACE}, but some tokens have {SPACE} inside", {})


def _unk_id(model: Json) -> int:
    if model.get("unk_id") is None:
        not_in_gguf("Unigram", "has no unknown token, in whose place readers of GGUF use id 2", model)
    return count(model, "unk_id", 0, sum(1 for _ in scored(model)) - 1)


def _is_control(of: Published, token: str | None) -> bool:
    return any(one.content == token and one.is_control for one in of.vocab.added.values())


def _losses_of_spaces(of: Published, fields: Effects) -> Iterator[str]:
    yield from losses_of_metaspace(of.tokenizer)
    yield from losses_of_spaces(list(of.vocab.added.values()), set(), "prefix" in fields)
    if not _collapses(fields) and ("left" in fields or "right" in fields):
        yield "GGUF cannot express that spaces at the ends of a text are dropped"
    if "collapses" in fields and "words" not in fields and not ("left" in fields and "right" in fields):
        yield "readers of GGUF drop all spaces at the ends of a text, the directory keeps one"


def _losses_of_scores(of: Published, values: list[float], types: list[int]) -> Iterator[str]:
    if any(float32(score) != score for score in values):
        yield "GGUF stores scores as float32; among cuts of nearly equal score another may win"
    normal = [score for score, kind in zip(values, types, strict=False) if kind == NORMAL]
    if min(normal, default=0.0) != min(values, default=0.0):
        yield "the worst score belongs to a token that is not text; readers of GGUF ignore such tokens"
    if not read_processor(of.tokenizer).after and not role_ids(of.settings, of.vocab, "eos"):
        yield "no token ends a text, in whose place readers of GGUF use id 1"
    if flag(of.model, "byte_fallback"):
        yield "text that spells a byte token, such as <0x0A>, becomes that token in the directory only"


def _precompiled(step: Json) -> Effect:
    data = charsmap_bytes(step)
    loss = (
        "readers of GGUF replace the longest strings of the character map, the directory single characters "
        "or short clusters with their accents; text with combining characters may get other ids"
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
    loss = "GGUF cannot express that whitespace other than spaces is dropped at the ends of a text"
    return Effect({"left": left, "right": right}, loss if left or right else "")


def _whitespace_split(_: Json) -> Effect:
    return Effect({"words": True}, "GGUF cannot express that words are cut at whitespace other than spaces")


def _lost(kind: str) -> Effect:
    return Effect(loss=f"GGUF cannot express normalization by {kind}; affected text gets other ids")


# Lowercase has no row, since its loss would change the ids of ordinary text.
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

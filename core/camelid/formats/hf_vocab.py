"""The vocabulary of a tokenizer.json: tokens, ids, added tokens and merges, checked against each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.hf_splitting import Json, array, mapping, typed
from camelid.text.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

MAX_SCORED_CHARS = 256  # longer tokens are not looked at split by split
TEXT = frozenset({NORMAL, USER_DEFINED})  # what merges may make: Gemma lists ▁▁ as added and merged
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
# Marked as ordinary by files, though they steer; converters to GGUF make them control tokens too.
LOOKS_CONTROL = re.compile(r"<\|.*\|>|<｜.*｜>|<pad>|<mask>|<2mass>|\[@BOS@\]|<unused\d+>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Added:
    """A token that text may name outright."""

    content: str
    special: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, ids by token, and the pairs that merge, lowest rank first."""

    tokens: list[str | None]
    ids: dict[str, int]
    added: dict[int, Added]
    merges: list[tuple[str, str]]


def vocabulary(tokenizer: Json, model: Json, tokenizer_config: Json, size: int) -> Vocabulary:
    """Tokens of the model and those added to it. Raises ModelFormatError, UnsupportedModelError.

    Added tokens with ids from `size` on are left out, as converters do: no embedding has a row for them.
    Gemma 3's text-only models share a file with those that see, and so list a token for images.
    """
    tokens: list[str | None] = [None] * size
    for token, token_id in mapping(model.get("vocab"), "model.vocab").items():
        _place(tokens, token, token_id)
    ids = {token: token_id for token_id, token in enumerate(tokens) if token is not None}
    added: dict[int, Added] = {}
    for token_id, token in _added(tokenizer, tokenizer_config):
        if type(token_id) is int and token_id >= size:
            continue
        _place(tokens, token.content, token_id)
        if ids.setdefault(token.content, cast(int, token_id)) != token_id:
            raise ModelFormatError(
                f"tokenizer: {shown(token.content)} has two ids, {ids[token.content]} and {token_id}",
                token=token.content,
            )
        added.setdefault(cast(int, token_id), token)
    return Vocabulary(tokens, ids, added, list(_merges(model, ids)))


def _place(tokens: list[str | None], token: object, token_id: object) -> None:
    """Put a token in its place, which must be free, or its own already."""
    text = unicode(token)
    if type(token_id) is not int or not 0 <= token_id < len(tokens):
        raise ModelFormatError(
            f"tokenizer: {shown(text)} has id {shown(token_id)}, want one below vocab_size, {len(tokens)}",
            token=text,
            got=token_id,
            want=len(tokens),
        )
    if tokens[token_id] not in (None, text):
        raise ModelFormatError(
            f"tokenizer: id {token_id} is {shown(tokens[token_id])} and {shown(text)}", token=text
        )
    tokens[token_id] = text


def unicode(token: object) -> str:
    """`token` if it is text that UTF-8 can hold. Raises ModelFormatError."""
    text = typed(token, str, "a token")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ModelFormatError(f"tokenizer: token {shown(text)} is not Unicode text", token=text) from None
    return text


def _added(tokenizer: Json, tokenizer_config: Json) -> Iterator[tuple[object, Added]]:
    """Added tokens of tokenizer.json, then those of tokenizer_config.json, which has its ids as strings."""
    for value in array(tokenizer.get("added_tokens") or [], "added_tokens"):
        item = mapping(value, "added_tokens")
        yield item.get("id"), _added_token(item)
    decoder = mapping(tokenizer_config.get("added_tokens_decoder") or {}, "added_tokens_decoder")
    for name, value in decoder.items():
        token_id = int(name) if re.fullmatch("[0-9]{1,12}", name) else name
        yield token_id, _added_token(mapping(value, "added_tokens_decoder"))


def _added_token(item: Json) -> Added:
    special = typed(item.get("special", False), bool, "added_tokens.special")
    return Added(typed(item.get("content"), str, "added_tokens.content"), special)


def _merges(model: Json, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for rank, value in enumerate(array(model.get("merges"), "model.merges")):
        left, right = _pair(value, rank)
        for token in (left, right, left + right):
            if token not in ids:
                raise ModelFormatError(
                    f"tokenizer: merge {rank} needs {shown(token)}, which is not in the vocabulary",
                    token=token,
                )
        yield left, right


def _pair(value: object, rank: int) -> tuple[str, str]:
    """Both forms: "a b", and ["a", "b"] of newer files."""
    parts: list[object] = [*value.split(" ")] if isinstance(value, str) else array(value, "model.merges")
    if len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ModelFormatError(
            f"tokenizer: merge {rank} has {len(parts)} parts, want two tokens", key="model.merges"
        )
    left, right = cast("tuple[str, str]", parts)
    if " " in left or " " in right:
        raise UnsupportedModelError(
            f"tokenizer: merge {rank} joins {shown(left)} and {shown(right)}; merges in GGUF have no spaces",
            kind="tokenizer",
            name="merges",
        )
    return left, right


def token_types(vocab: Vocabulary, named: Iterable[str], unknown: object, has_bytes: bool) -> list[int]:
    """tokenizer.ggml.token_type of every id; `named` are tokens that the small files give a role."""
    merged = {left + right for left, right in vocab.merges}
    # A name like "!" given to padding is text all the same; one that merges make cannot steer.
    steering = {token for token in named if len(token) > 1 and token not in merged}

    def kind(token_id: int, token: str | None) -> int:
        if token is None:
            return UNUSED
        if token == unknown:
            return UNKNOWN
        if (added := vocab.added.get(token_id)) is not None:
            return CONTROL if added.special or LOOKS_CONTROL.fullmatch(token) else USER_DEFINED
        if has_bytes and BYTE_TOKEN.fullmatch(token):
            return BYTE
        return CONTROL if token in steering else NORMAL

    return [kind(token_id, token) for token_id, token in enumerate(vocab.tokens)]


def _ranks(vocab: Vocabulary) -> dict[str, int]:
    """Each merged token's place in the order of their first merges."""
    return {token: i for i, token in enumerate(dict.fromkeys(left + right for left, right in vocab.merges))}


def scores(vocab: Vocabulary, types: list[int]) -> list[float]:
    """-rank, as SentencePiece gives; tokens that no merge makes come after, in the order of their ids."""
    ranks = _ranks(vocab)
    found: list[float] = []
    n = len(ranks)
    for token, kind in zip(vocab.tokens, types, strict=True):
        rank = ranks.get(token) if token is not None else None
        late = kind in TEXT and rank is None
        found.append(-float(n) if late else -float(rank or 0))
        n += late
    return found


def told_by_scores(vocab: Vocabulary, types: list[int]) -> bool:
    """Whether joining any two tokens whose text is a token, best score first, is just what the merges say.

    So it is in files made from SentencePiece's, whose merges were listed from its scores.
    """
    ranks = _ranks(vocab)
    order = [ranks[left + right] for left, right in vocab.merges]
    if order != sorted(order) or len(set(vocab.merges)) != len(vocab.merges):
        return False
    text = {t for t, kind in zip(vocab.tokens, types, strict=True) if t and kind in TEXT}
    if any(len(token) > MAX_SCORED_CHARS for token in text):
        return False
    splits = sum(t[:i] in text and t[i:] in text for t in text for i in range(1, len(t)))
    return splits == len(vocab.merges)


def shown(value: object) -> str:
    """A short repr of a string or number; of all else the type only, as it may be of any size."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    small = isinstance(value, int) and abs(value) < 1 << 64
    return repr(value) if small else f"a value of type {type(value).__name__}"

"""The vocabulary of a tokenizer.json: tokens, ids, added tokens and merges, checked against each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.values import Json, array, flag, mapping, shown, text, unicode

MAX_VOCAB = 1 << 22  # sixteen times the largest known; every id costs memory, also without a token


@dataclass(frozen=True, slots=True)
class Added:
    """A token that text may name outright, with the fields of `tokenizers`' AddedToken.

    `overridden`: a rule of text/tokenizers/steering.py makes the token steer.
    """

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    overridden: bool = False

    @property
    def steers(self) -> bool:
        """Whether it steers the model: then only trusted text may name it, and decoding leaves it out."""
        return self.special or self.overridden


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, ids by token, and what was added to the model's own.

    `steering`: texts of the tokens that the rules of text/tokenizers/steering.py make steer.
    """

    tokens: list[str | None]
    ids: dict[str, int]
    added: dict[int, Added]
    steering: frozenset[str] = frozenset()


def vocabulary(tokenizer: Json, model: Json, tokenizer_config: Json, size: int) -> Vocabulary:
    """Tokens of the model and those added to it, with ids below `size`. Raises ModelFormatError.

    Added tokens with ids from `size` on are left out, as converters do: no embedding has a row for them.
    Gemma 3's text-only models share a file with those that see, and so list a token for images.
    """
    tokens: list[str | None] = [None] * size
    for token, token_id in own_tokens(model):
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
        added[cast(int, token_id)] = token
    return Vocabulary(tokens, ids, added)


def own_tokens(model: Json) -> Iterator[tuple[object, object]]:
    """(token, id) of the model: an object of them, or Unigram's list of [token, score] in order."""
    vocab = model.get("vocab")
    if isinstance(vocab, list):
        for i, item in enumerate(cast("list[object]", vocab)):
            yield next(iter(array(item, "model.vocab")), None), i
    else:
        yield from mapping(vocab, "model.vocab").items()


def size_of(tokenizer: Json, model: Json, tokenizer_config: Json) -> int:
    """One more than the highest id that the files name. Raises ModelFormatError if that cannot be."""
    named = [token_id for _, token_id in own_tokens(model)]
    named += [token_id for token_id, _ in _added(tokenizer, tokenizer_config)]
    size = max((token_id for token_id in named if type(token_id) is int), default=-1) + 1
    if 0 < size <= MAX_VOCAB:
        return size
    raise ModelFormatError(
        f"tokenizer: its ids end at {size - 1}, want 0 to {MAX_VOCAB - 1}", key="model.vocab"
    )


def _place(tokens: list[str | None], token: object, token_id: object) -> None:
    """Put a token in its place, which must be free, or its own already."""
    name = unicode(token)
    if type(token_id) is not int or not 0 <= token_id < len(tokens):
        raise ModelFormatError(
            f"tokenizer: {shown(name)} has id {shown(token_id)}, want one below vocab_size, {len(tokens)}",
            token=name,
            got=token_id,
            want=len(tokens),
        )
    if tokens[token_id] not in (None, name):
        raise ModelFormatError(
            f"tokenizer: id {token_id} is {shown(tokens[token_id])} and {shown(name)}", token=name
        )
    tokens[token_id] = name


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
    names = ("special", "lstrip", "rstrip", "single_word")
    special, lstrip, rstrip, single_word = (flag(item, name) for name in names)
    normalized = flag(item, "normalized", default=not special)
    return Added(text(item, "content"), special, lstrip, rstrip, single_word, normalized)


def pairs(model: Json, ids: Mapping[str, int], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The merges, lowest rank first; what a merge makes drops the `prefix` of its right half."""
    for rank, value in enumerate(array(model.get("merges"), "model.merges")):
        left, right = _pair(value, rank)
        for token in (left, right, left + right.removeprefix(prefix)):
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
    return cast("tuple[str, str]", tuple(parts))


def merged(merges: Iterable[tuple[str, str]]) -> set[str]:
    """What merges make."""
    return {left + right for left, right in merges}

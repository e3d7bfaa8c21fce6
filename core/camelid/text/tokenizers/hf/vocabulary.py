"""The vocabulary of a tokenizer.json: tokens, ids, added tokens and merges, with consistency checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.values import Json, array, flag, mapping, shown, text, unicode

MAX_VOCAB = 1 << 22  # 16 times the largest known; an id without a token costs memory too


@dataclass(frozen=True, slots=True)
class Added:
    """A token that text may name, with the fields of `tokenizers`' AddedToken.

    `overridden`: a rule of control_tokens.py makes it a control token.
    """

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    overridden: bool = False

    @property
    def is_control(self) -> bool:
        """True for a control token: only trusted text may name it, and decoding leaves it out."""
        return self.special or self.overridden


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, ids by token, and the added tokens by id.

    `control_texts`: texts of the control tokens by the rules of control_tokens.py.
    """

    tokens: list[str | None]
    ids: dict[str, int]
    added: dict[int, Added]
    control_texts: frozenset[str] = frozenset()


def vocabulary(tokenizer: Json, model: Json, tokenizer_config: Json, size: int) -> Vocabulary:
    """The vocabulary of the model's own and added tokens, with ids below `size`. Raises ModelFormatError.

    Added tokens with ids from `size` on are left out, as converters do: the embedding has no row for them.
    Gemma 3's text-only models share a file with the vision models, which lists a token for images.
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
    """Yields (token, id) of the model: items of an object, or of Unigram's list of [token, score]."""
    vocab = model.get("vocab")
    if isinstance(vocab, list):
        for i, item in enumerate(cast("list[object]", vocab)):
            yield next(iter(array(item, "model.vocab")), None), i
    else:
        yield from mapping(vocab, "model.vocab").items()


def size_of(tokenizer: Json, model: Json, tokenizer_config: Json) -> int:
    """The highest id in the files plus one. Raises ModelFormatError for 0 and for more than MAX_VOCAB."""
    ids = [token_id for _, token_id in own_tokens(model)]
    ids += [token_id for token_id, _ in _added(tokenizer, tokenizer_config)]
    size = max((token_id for token_id in ids if type(token_id) is int), default=-1) + 1
    if 0 < size <= MAX_VOCAB:
        return size
    raise ModelFormatError(
        f"tokenizer: the highest id is {size - 1}, expected 0 to {MAX_VOCAB - 1}", key="model.vocab"
    )


def _place(tokens: list[str | None], token: object, token_id: object) -> None:
    """Puts a token at its id. Raises ModelFormatError for an invalid id and for the id of another token."""
    name = unicode(token)
    if type(token_id) is not int or not 0 <= token_id < len(tokens):
        raise ModelFormatError(
            f"tokenizer: {shown(name)} has id {shown(token_id)}, expected an id below vocab_size, "
            f"{len(tokens)}",
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
    """Yields (id, token) from tokenizer.json, then from tokenizer_config.json, where ids are strings."""
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
    """Yields the merges, lowest rank first; the merged token is left + right without `prefix`.

    Raises ModelFormatError for a token outside the vocabulary.
    """
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
    """The two tokens of a merge: "a b", or ["a", "b"] in newer files."""
    parts: list[object] = [*value.split(" ")] if isinstance(value, str) else array(value, "model.merges")
    if len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ModelFormatError(
            f"tokenizer: merge {rank} has {len(parts)} parts, expected two tokens", key="model.merges"
        )
    return cast("tuple[str, str]", tuple(parts))


def merged(merges: Iterable[tuple[str, str]]) -> set[str]:
    """The merged tokens."""
    return {left + right for left, right in merges}

"""SentencePiece BPE (GGUF kind "llama": Llama 2, Mistral, Gemma, Phi-3): characters merged by scores.

Spaces become ▁, one ▁ is put before every stretch of text, and characters without a token become the tokens
of their UTF-8 bytes. Text is not normalized, as in llama.cpp. Files converted from a tokenizer.json may list
merges, which then replace the scores.
Source: google/sentencepiece, bpe_model.cc; Kudo and Richardson, arXiv:1808.06226.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.text.tokenizers.merge import merge, text_merges
from camelid.text.tokenizers.metadata import array, flag, key, retyped, roles, tokens_and_types
from camelid.text.tokenizers.pipeline import Pipeline, as_it_is, whole, without_space
from camelid.text.tokenizers.pretokenize import Splitter
from camelid.text.tokenizers.vocab import (
    BYTE,
    CONTROL_TYPES,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocab,
    literal,
)

SPACE = "▁"
TEXT_TYPES = frozenset({NORMAL, USER_DEFINED})  # tokens that text may become
BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
WORD = re.compile(f"{SPACE}*[^{SPACE}]*")
# Default ids of files without these keys (llama.cpp src/llama-vocab.cpp).
DEFAULT_IDS = {key("bos_token_id"): 1, key("eos_token_id"): 2}
# Keys of other kinds, each with the value that has no effect here.
HARMLESS: dict[str, object] = {
    "remove_extra_whitespaces": False,
    "treat_whitespace_as_suffix": False,
    "escape_whitespaces": True,
    "precompiled_charsmap": [],
}


def piece_bytes(token: str, token_type: int) -> bytes:
    """The bytes of one token, with ▁ as a space in text tokens. Raises ModelFormatError."""
    if token_type in CONTROL_TYPES:
        return literal(token, token_type)
    if token_type != BYTE:
        return literal(token.replace(SPACE, " "), token_type)
    return bytes((byte_of(token),))


def byte_of(token: str) -> int:
    """The byte of a token of type BYTE, such as <0x0A>. Raises ModelFormatError."""
    if found := BYTE_TOKEN.fullmatch(token):
        return int(found[1], 16)
    raise ModelFormatError(f"tokenizer: byte token {token!r:.80}, expected <0x00> to <0xFF>", token=token)


class SentencePieceBpe:
    """Encodes words. `ranks` are the ranks of `left + joiner + right`; the lowest rank is merged first.

    Tokens in `unused` are merged like the others and split into their parts again.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        byte_ids: Mapping[int, int],
        unknown_id: int | None,
        *,
        ranks: dict[str, float | None],
        joiner: str = "",
        unused: AbstractSet[str] = frozenset(),
    ) -> None:
        self._ids = ids
        self._byte_ids = byte_ids
        self._unknown_id = unknown_id
        self._ranks = ranks
        self._joiner = joiner
        self._unused = unused
        self._halves: dict[str, Sequence[str]] = {}

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of one word. Raises RequestError for a character without any token."""
        symbols = merge(list(word), self._ranks, self._joiner)
        if self._unused and not self._unused.isdisjoint(symbols):
            symbols = self._without_unused(symbols)
        ids = self._ids
        try:
            return tuple([ids[symbol] for symbol in symbols])
        except KeyError:
            return self._with_fallback(symbols)

    def _with_fallback(self, symbols: Sequence[str]) -> Sequence[int]:
        """Token ids of symbols, some without a token.

        A run of unknown characters becomes one unknown token.
        """
        token_ids: list[int] = []
        for symbol in symbols:
            token_id = self._ids.get(symbol)
            found = self._fallback(symbol) if token_id is None else [token_id]
            if found != [self._unknown_id] or token_ids[-1:] != found:
                token_ids += found
        return tuple(token_ids)

    def _fallback(self, char: str) -> list[int]:
        """The tokens of a character's bytes, else the unknown token. Raises RequestError."""
        bytes_of_char = char.encode()
        if self._byte_ids.keys() >= set(bytes_of_char):
            return [self._byte_ids[byte] for byte in bytes_of_char]
        if self._unknown_id is not None:
            return [self._unknown_id]
        raise RequestError(
            f"the vocabulary has no token for {char!r}, nor for its bytes, nor an unknown token",
            field="text",
            code_point=ord(char),
        )

    def _without_unused(self, symbols: Sequence[str]) -> list[str]:
        """The symbols with each unused token replaced by the symbols that it was merged from."""
        waiting = list(reversed(symbols))
        used: list[str] = []
        while waiting:
            symbol = waiting.pop()
            if symbol in self._unused and len(symbol) > 1:
                waiting += reversed(self._halves_of(symbol))
            else:
                used.append(symbol)
        return used

    def _halves_of(self, token: str) -> Sequence[str]:
        """The symbols that a token is merged from: the result of all merges except the last."""
        if token not in self._halves:
            ranks = ChainMap[str, float | None]({token: None}, self._ranks)
            self._halves[token] = merge(list(token), ranks)
        return self._halves[token]

    def split(self, text: str) -> Iterable[str]:
        """Words with the spaces before them, which can be cached; the whole text if words must not be cut."""
        if self._cuts_words:
            return (found[0] for found in WORD.finditer(text) if found[0])
        return whole(text)

    @cached_property
    def _cuts_words(self) -> bool:
        """True if cutting before ▁ changes no token: no token has ▁ inside, and ▁ is a token."""
        tokens = self._ids.keys() | self._unused
        return SPACE in self._ids and not any(SPACE in token.lstrip(SPACE) for token in tokens)


def spelled_ids(vocab: Vocab, kinds: Container[int]) -> dict[str, int]:
    """Ids of the tokens of some types, by their spelling with ▁. The lowest id counts."""
    rows = zip(reversed(vocab.tokens), reversed(vocab.types), range(len(vocab) - 1, -1, -1), strict=True)
    return {token.replace(" ", SPACE): i for token, kind, i in rows if kind in kinds and token}


def by_scores(metadata: Mapping[str, object], vocab: Vocab) -> SentencePieceBpe:
    """The model of files with scores.

    Without scores the leftmost pair is merged first. Raises ModelFormatError.
    """
    scores = array(metadata, "scores", float) if key("scores") in metadata else [0.0] * len(vocab)
    if len(scores) != len(vocab) or any(score != score for score in scores):
        raise ModelFormatError(
            f"{key('scores')} has {len(scores)} numbers for {len(vocab)} tokens, or NaN among them; "
            "the file is damaged",
            got=len(scores),
            want=len(vocab),
        )
    ids = spelled_ids(vocab, TEXT_TYPES)
    made = spelled_ids(vocab, {UNUSED}) | ids
    ranks: dict[str, float | None] = {token: -scores[i] for token, i in made.items() if len(token) > 1}
    return SentencePieceBpe(ids, *fallbacks(vocab), ranks=ranks, unused=made.keys() - ids.keys())


def by_merges(metadata: Mapping[str, object], vocab: Vocab) -> SentencePieceBpe:
    """The model of files with listed merges. Raises ModelFormatError."""
    control = {t.replace(" ", SPACE) for t in retyped(metadata, vocab)}
    ids = spelled_ids(vocab, TEXT_TYPES)
    merges = text_merges(array(metadata, "merges", str), ids, control)
    ranks: dict[str, float | None] = {pair: rank for rank, pair in enumerate(merges)}
    return SentencePieceBpe(ids, *fallbacks(vocab), ranks=ranks, joiner=" ")


def fallbacks(vocab: Vocab) -> tuple[dict[int, int], int | None]:
    """The ids of byte tokens, and of the unknown token. Raises ModelFormatError."""
    byte_ids = {byte_of(vocab.tokens[i]): i for i, kind in enumerate(vocab.types) if kind == BYTE}
    return byte_ids, next((i for i, kind in enumerate(vocab.types) if kind == UNKNOWN), None)


def sentencepiece_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer described by `tokenizer.ggml.*`, kind "llama".

    Raises ModelFormatError, UnsupportedModelError.
    """
    refuse_other_kinds(metadata)
    metadata = DEFAULT_IDS | {**metadata}
    vocab = Vocab(*tokens_and_types(metadata), piece_bytes)
    model = (by_merges if key("merges") in metadata else by_scores)(metadata, vocab)
    prefix = SPACE if flag(metadata, "add_space_prefix", default=True) else ""
    return Pipeline(
        vocab,
        model.encode_word,
        roles=roles(metadata, vocab, add_bos=True),
        # llama.cpp puts the space before every stretch, not only before the first.
        prepare=lambda text, opens: prefix + text.replace(" ", SPACE),
        joined=lambda text, opens: text.replace(" ", SPACE),
        split=model.split,
        opening=without_space if prefix else as_it_is,
    )


def characters_from_gguf(metadata: Mapping[str, object], row: Splitter) -> Pipeline:
    """Kind "gpt2" with tokens spelled in characters and ▁ for a space, as in Gemma 4, instead of bytes.

    Merges are listed, the row cuts the words, and no space is put before a text. Raises ModelFormatError.
    """
    vocab = Vocab(*tokens_and_types(metadata), piece_bytes)
    model, lines = by_merges(metadata, vocab), spelled_ids(vocab, TEXT_TYPES)

    def encode_word(word: str) -> Sequence[int]:
        # As in llama.cpp: converters drop the merges of line ends but keep the tokens.
        if word in lines and not word.strip("\n"):
            return (lines[word],)
        return model.encode_word(word)

    return Pipeline(
        vocab,
        encode_word,
        roles=roles(metadata, vocab, add_bos=row.add_bos),
        prepare=lambda text, opens: text.replace(" ", SPACE),
        split=row.split,
    )


def refuse_other_kinds(metadata: Mapping[str, object]) -> None:
    """Raises UnsupportedModelError for settings that readers of this kind ignore: ids would be wrong."""
    for name, harmless in HARMLESS.items():
        if (value := metadata.get(key(name), harmless)) != harmless:
            raise UnsupportedModelError(
                f"{key(name)} is {value!r:.40}, which readers of kind 'llama' ignore; "
                "remove it from the file if the model was trained without it",
                kind="tokenizer",
                name=name,
            )

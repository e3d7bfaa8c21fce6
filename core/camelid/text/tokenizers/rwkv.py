"""RWKV's tokenizer (GGUF kind "rwkv"): greedy encoding by the longest token at each position.

Tokens are byte strings, which files escape as Python does: \\t, \\n, \\r, \\x and two digits, or a backslash
before any other character. Source: BlinkDL/RWKV-LM, rwkv_vocab_v20230424.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.text.tokenizers.metadata import roles, special_id, tokens_and_types
from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.vocab import NORMAL, USER_DEFINED, Vocab, literal

ESCAPED = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
CONTROLS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
TEXT = frozenset({NORMAL, USER_DEFINED})
MAX_TOKEN_BYTES = 1024  # published vocabularies have at most 128; the work per byte of text grows with it


def unescaped(token: str, token_type: int) -> bytes:
    """The bytes of one token. Raises ModelFormatError for an invalid escape."""

    def byte(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if code in (b"", b"x"):
            raise ModelFormatError(
                f"tokenizer: token {token!r:.80} has an incomplete escape after a backslash", token=token
            )
        return bytes.fromhex(code[1:].decode()) if len(code) == 3 else CONTROLS.get(code, code)

    return ESCAPED.sub(byte, literal(token, token_type))


class LongestMatch:
    """Finds the longest token at a position of a text in O(log(number of lengths)) look-ups.

    A binary search over the lengths of tokens. The prefixes of longer tokens that such searches visit are
    stored with the longest token that each of them begins with, so a failed search for a long token has
    already found the shorter one (Waldvogel et al., SIGCOMM 1997).
    """

    def __init__(self, tokens: Iterable[bytes]) -> None:
        shorter_first = sorted(tokens, key=len)
        self._lengths = sorted({len(token) for token in shorter_first})
        self._longest: dict[bytes, bytes] = {}  # token or visited prefix -> the longest token at its start
        for token in shorter_first:
            for length in visited_lengths(self._lengths, len(token)):
                begun = token[:length]
                if begun not in self._longest:
                    self._longest[begun] = self.find(begun, 0)
            self._longest[token] = token

    def find(self, text: bytes, at: int) -> bytes:
        """The longest token at `at`, or empty bytes."""
        lengths, longest = self._lengths, self._longest
        best, low, high = b"", 0, len(lengths)
        while low < high:
            middle = (low + high) // 2
            found = longest.get(text[at : at + lengths[middle]])
            if found is None:
                high = middle
            else:
                best, low = found, middle + 1
        return best


def visited_lengths(lengths: Sequence[int], length: int) -> Iterable[int]:
    """The shorter lengths that a binary search for `length` visits."""
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        if lengths[middle] < length:
            yield lengths[middle]
            low = middle + 1
        else:
            high = middle


class Rwkv:
    """Encodes text of any length. Raises ModelFormatError, UnsupportedModelError."""

    def __init__(self, vocab: Vocab, unknown_id: int | None) -> None:
        pieces = [unescaped(token, kind) for token, kind in zip(vocab.tokens, vocab.types, strict=True)]
        rows = zip(range(len(vocab)), vocab.types, pieces, strict=True)
        # The lowest id counts. Control and unused tokens are left out: no text may become one.
        self._ids = {piece: i for i, kind, piece in reversed(list(rows)) if kind in TEXT and piece}
        self._unknown_id = unknown_id
        check_lengths(self._ids)
        self._tokens: dict[int, list[bytes]] = {}  # by first byte
        for token in self._ids:
            self._tokens.setdefault(token[0], []).append(token)
        self._matches: dict[int, LongestMatch] = {}  # by first byte, made on first use

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of `word`. Raises RequestError if a byte has no token."""
        text, at, token_ids = word.encode(), 0, list[int]()
        ids, matches = self._ids, self._matches
        while at < len(text):
            match = matches.get(text[at]) or self._match_for(text[at])
            if token := match.find(text, at):
                token_ids.append(ids[token])
                at += len(token)
            else:
                token_ids.append(self._unknown(text[at]))
                at += 1
        return tuple(token_ids)

    def _match_for(self, first: int) -> LongestMatch:
        found = self._matches[first] = LongestMatch(self._tokens.get(first, ()))
        return found

    def _unknown(self, byte: int) -> int:
        if self._unknown_id is not None:
            return self._unknown_id
        raise RequestError(
            f"the vocabulary has no token for byte 0x{byte:02x}, nor for unknown bytes",
            field="text",
            byte=byte,
        )


def check_lengths(tokens: Iterable[bytes]) -> None:
    """Raises UnsupportedModelError for a token too long to be searched at every byte of a text."""
    longest = max(tokens, key=len, default=b"")
    if len(longest) > MAX_TOKEN_BYTES:
        raise UnsupportedModelError(
            f"the tokenizer has a token of {len(longest)} bytes, {longest[:20]!r}…; in kind 'rwkv' at most "
            f"{MAX_TOKEN_BYTES} are supported",
            kind="tokenizer",
            name="rwkv",
        )


def rwkv_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer described by `tokenizer.ggml.*`, kind "rwkv".

    Raises ModelFormatError, UnsupportedModelError.
    """
    vocab = Vocab(*tokens_and_types(metadata), unescaped)
    model = Rwkv(vocab, special_id(metadata, "unknown_token_id", len(vocab)))
    return Pipeline(vocab, model.encode_word, roles=roles(metadata, vocab))

"""The vocabulary as the grammar engine reads it: bytes of tokens, sets of tokens as bits, and tries.

A set of tokens is an integer: bit i is token i.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import compress, groupby
from operator import itemgetter
from typing import Protocol

from camelid.errors import RequestError
from camelid.text.grammar.bytes_nfa import SHORT_BYTES

ASCII = 128
ONE = ord("1")
CACHED_TRIES = 8  # tries over part of the vocabulary
DIGIT_VALUES = bytes(byte - 0x30 & 0xFF for byte in range(256))


class Trie:
    """A trie of sorted, distinct keys, each with the tokens of these bytes; nodes are made on first use.

    Node n stands for the keys lows[n] … highs[n] - 1, which share their first depths[n] bytes; the last of
    these bytes is bytes_in[n]. Its children are firsts[n] … ends[n] - 1 once `expand` has made them; until
    then firsts[n] is 0. Nodes are arrays, not objects, since the garbage collector would visit every object.
    """

    def __init__(self, keys: list[bytes], token_ids: list[tuple[int, ...]]) -> None:
        self.keys = keys
        self.token_ids = token_ids
        self.lows, self.highs, self.depths = array("i", [0]), array("i", [len(keys)]), array("i", [0])
        self.firsts, self.ends, self.bytes_in = array("i", [0]), array("i", [0]), bytearray(1)

    def expand(self, node: int) -> int:
        """Makes the children of a node that has none yet, and returns the first."""
        low, depth, first = self.lows[node], self.depths[node], len(self.lows)
        low += len(self.keys[low]) == depth
        column = bytes(map(itemgetter(depth), self.keys[low : self.highs[node]]))
        at = 0
        while at < len(column):
            self.bytes_in.append(column[at])
            self.lows.append(low + at)
            at = bisect_right(column, column[at], at)
            self.highs.append(low + at)
        n_new = len(self.lows) - first
        self.depths.extend(array("i", [depth + 1]) * n_new)
        self.firsts.extend(array("i", [0]) * n_new)
        self.ends.extend(array("i", [0]) * n_new)
        self.firsts[node], self.ends[node] = first, first + n_new
        return first


class Tokens:
    """Part of a vocabulary's text tokens: those of at most SHORT_BYTES bytes, or the longer ones."""

    def __init__(self, table: TokenTable, trie: Trie) -> None:
        self.table = table
        self.trie = trie
        self.all = table.bits(token_id for ids in trie.token_ids for token_id in ids)
        self.only = lru_cache(CACHED_TRIES)(self.chosen)
        self._index = {token_id: i for i, ids in enumerate(trie.token_ids) for token_id in ids}

    def chosen(self, token_ids: int) -> Trie:
        """The trie of a set of these tokens; tokens of equal bytes are included. `only` caches it."""
        flags = f"{token_ids:b}"[::-1].encode().translate(DIGIT_VALUES)
        indices = sorted({self._index[i] for i in compress(range(len(flags)), flags)})
        keys, ids = self.trie.keys, self.trie.token_ids
        return Trie([keys[i] for i in indices], [ids[i] for i in indices])


class Vocabulary(Protocol):
    """The part of `Tokenizer` that masks use."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def is_control(self, token_id: int) -> bool: ...


class TokenTable:
    """Data about a tokenizer for masks, each part made on first use. Share one table per tokenizer."""

    def __init__(self, tokenizer: Vocabulary) -> None:
        self.vocab_size = tokenizer.vocab_size
        self.eos_ids = frozenset(i for i in tokenizer.eos_ids if 0 <= i < self.vocab_size)
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, tokenizer: Vocabulary) -> TokenTable:
        """The table of a tokenizer; cheap until first use."""
        return cls(tokenizer)

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """Bytes by token id; empty for tokens without text: control tokens and tokens that end a text."""
        tokenizer, ids = self._tokenizer, range(self.vocab_size)
        silent = self.eos_ids
        return [b"" if i in silent or tokenizer.is_control(i) else tokenizer.token_bytes(i) for i in ids]

    def checked_bytes(self, token_id: int) -> bytes:
        """The bytes of a token id. Raises RequestError for an id out of range."""
        if 0 <= token_id < self.vocab_size:
            return self.token_bytes[token_id]
        raise RequestError(
            f"token id {token_id} is out of range; the vocabulary has ids 0 to {self.vocab_size - 1}",
            field="token_ids",
            token_id=token_id,
            vocab_size=self.vocab_size,
        )

    @cached_property
    def eos_bits(self) -> int:
        return self.bits(self.eos_ids)

    @cached_property
    def any_token(self) -> int:
        """Every token except those that end a text."""
        return ((1 << self.vocab_size) - 1) & ~self.eos_bits

    def bits(self, token_ids: Iterable[int]) -> int:
        """A set of tokens as bits."""
        digits = bytearray(b"0") * (self.vocab_size + 1)
        for token_id in token_ids:
            digits[~token_id] = ONE
        return int(digits, 2)

    @cached_property
    def _sorted(self) -> list[tuple[bytes, tuple[int, ...]]]:
        token_bytes = self.token_bytes
        order = sorted((i for i, data in enumerate(token_bytes) if data), key=token_bytes.__getitem__)
        return [(data, tuple(ids)) for data, ids in groupby(order, token_bytes.__getitem__)]

    @cached_property
    def short(self) -> Tokens:
        return self._part([row for row in self._sorted if len(row[0]) <= SHORT_BYTES])

    @cached_property
    def long(self) -> Tokens:
        return self._part([row for row in self._sorted if len(row[0]) > SHORT_BYTES])

    def _part(self, rows: Sequence[tuple[bytes, tuple[int, ...]]]) -> Tokens:
        return Tokens(self, Trie([data for data, _ in rows], [ids for _, ids in rows]))

    @cached_property
    def _holding(self) -> list[int]:
        """Sets of tokens by content.

        For each ASCII character the tokens that contain it; at index 128 the tokens with other characters; at
        129 the tokens that are not valid UTF-8.
        """
        found: list[list[int]] = [[] for _ in range(ASCII + 2)]
        for token_id, data in enumerate(self.token_bytes):
            if data.isascii():
                for byte in set(data):
                    found[byte].append(token_id)
            else:
                found[ASCII if is_utf8(data) else ASCII + 1].append(token_id)
                for byte in set(data):
                    if byte < ASCII:
                        found[byte].append(token_id)
        return [self.bits(ids) for ids in found]

    def written_in(self, ascii_bytes: frozenset[int], *, others: bool) -> int:
        """Tokens of whole characters, all of them in `ascii_bytes` or, with `others`, beyond ASCII."""
        holding = self._holding
        wrong = holding[ASCII + 1] | (0 if others else holding[ASCII])
        for byte in range(ASCII):
            if byte not in ascii_bytes:
                wrong |= holding[byte]
        return (self.short.all | self.long.all) & ~wrong

    @cached_property
    def _at_most(self) -> list[int]:
        """At index n: the text tokens of at most n characters."""
        by_length: dict[int, list[int]] = {}
        for data, ids in self._sorted:
            by_length.setdefault(n_characters(data), []).extend(ids)
        found, bits = list[int](), 0
        for length in range(max(by_length, default=0) + 1):
            bits |= self.bits(by_length.get(length, ()))
            found.append(bits)
        return found

    def of_length(self, most: int) -> int:
        """The text tokens of at most `most` characters."""
        return self._at_most[min(most, len(self._at_most) - 1)]


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def n_characters(data: bytes) -> int:
    """The number of characters of valid UTF-8: every byte counts except continuation bytes."""
    return len(data) if data.isascii() else sum(byte & 0xC0 != 0x80 for byte in data)

"""A vocabulary as the grammar engine needs it: bytes of tokens, sets of tokens as bits, and a trie.

Sets of tokens are integers: bit i is token i.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from camelid.errors import RequestError
from camelid.text.grammar.bytes_nfa import SHORT_BYTES

if TYPE_CHECKING:
    from camelid.text.tokenizer import Tokenizer

ASCII = 128
KEPT_RESTS = 16  # tries over a part of the vocabulary


class Branch:
    """The keys low … high - 1 of a trie, which share their first `depth` bytes."""

    __slots__ = ("depth", "edges", "high", "low")

    def __init__(self, low: int, high: int, depth: int) -> None:
        self.low, self.high, self.depth = low, high, depth
        self.edges: list[tuple[int, Branch]] | None = None  # made on first use


class Trie:
    """Sorted keys, none twice, each with the tokens that it stands for."""

    def __init__(self, keys: list[bytes], token_ids: list[tuple[int, ...]]) -> None:
        self.keys = keys
        self.token_ids = token_ids
        self.root = Branch(0, len(keys), 0)

    def edges(self, branch: Branch) -> list[tuple[int, Branch]]:
        """(byte, branch) for each byte that goes on."""
        if branch.edges is None:
            depth, at = branch.depth, branch.low
            at += len(self.keys[at]) == depth
            branch.edges = []
            for byte, keys in groupby(self.keys[at : branch.high], itemgetter(depth)):
                low, at = at, at + sum(1 for _ in keys)
                branch.edges.append((byte, Branch(low, at, depth + 1)))
        return branch.edges


class Tokens:
    """Some of a vocabulary's text tokens: those of at most SHORT_BYTES bytes, or the longer ones."""

    def __init__(self, table: TokenTable, trie: Trie) -> None:
        self.table = table
        self.trie = trie
        self.first_ids = [ids[0] for ids in trie.token_ids]
        self.all = table.bits(token_id for ids in trie.token_ids for token_id in ids)
        self.without = lru_cache(KEPT_RESTS)(self._without)

    def _without(self, left_out: int) -> Trie:
        """The trie of the tokens outside a set; tokens of equal bytes must be inside or outside together."""
        flags = f"{left_out | 1 << self.table.vocab_size:b}"[:0:-1]
        kept = [i for i, token_id in enumerate(self.first_ids) if flags[token_id] == "0"]
        trie = self.trie
        return Trie([trie.keys[i] for i in kept], [trie.token_ids[i] for i in kept])


class TokenTable:
    """What masks need of a tokenizer, each part made on first use. One a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = tokenizer.vocab_size
        self.eos_ids = frozenset(i for i in tokenizer.eos_ids if 0 <= i < self.vocab_size)
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TokenTable:
        """The table of a tokenizer; cheap until it is used."""
        return cls(tokenizer)

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """By id; empty for tokens that are no text: control tokens and those that end a text."""
        tokenizer, ids = self._tokenizer, range(self.vocab_size)
        silent = self.eos_ids
        return [b"" if i in silent or tokenizer.is_control(i) else tokenizer.token_bytes(i) for i in ids]

    def checked_bytes(self, token_id: int) -> bytes:
        """`token_bytes` of one id. Raises RequestError for an id out of range."""
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
        """Every token but those that end a text."""
        return ((1 << self.vocab_size) - 1) & ~self.eos_bits

    def bits(self, token_ids: Iterable[int]) -> int:
        """A set of tokens; ids outside the vocabulary are left out."""
        size = self.vocab_size
        flags = bytearray(size // 8 + 1)
        for i in token_ids:
            if 0 <= i < size:
                flags[i >> 3] |= 1 << (i & 7)
        return int.from_bytes(flags, "little")

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
        """For each ASCII character the tokens that hold it; then those with other characters; then those
        that are not whole characters."""
        found: list[list[int]] = [[] for _ in range(ASCII + 2)]
        for data, ids in self._sorted:
            if not data.isascii():
                found[ASCII if is_utf8(data) else ASCII + 1] += ids
            for byte in set(data):
                if byte < ASCII:
                    found[byte] += ids
        return [self.bits(ids) for ids in found]

    def written_in(self, ascii_bytes: frozenset[int], *, others: bool) -> int:
        """Tokens of whole characters of these ASCII ones; with `others`, also of any that is not ASCII."""
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
    """Of whole UTF-8 characters: every byte counts that is no continuation."""
    return len(data) if data.isascii() else sum(byte & 0xC0 != 0x80 for byte in data)

"""SentencePiece's precompiled character map: strings and their replacements, as a double-array trie.

The data is a size in bytes (u32), a trie of that size, and the replacements, each ended by a zero byte. A
unit of the trie has 32 bits: bits 0-7 the byte that leads to it, bit 8 set if a string ends there, bits 10-30
the offset of its children, shifted left by 8 if bit 9 is set; a unit with bit 31 set contains a value.
Source: google/sentencepiece src/normalizer.cc, s-yata/darts-clone include/darts.h.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache

from camelid.errors import ModelFormatError

# Published maps have keys of up to 12 bytes and replacements of up to 33; the limits bound time and memory.
MAX_KEY = 48
MAX_REPLACEMENT = 128
CACHED_STEPS = 1 << 16
SHORT = 6  # `tokenizers` replaces a cluster of fewer bytes as a whole

VALUE, LEAF, WIDE = 1 << 31, 1 << 8, 1 << 9
LABEL = VALUE | 0xFF
NOWHERE = -1
Step = tuple[str | None, int]  # the replacement of the string that ends here, and the node of longer strings


class Charsmap:
    """Replaces strings by the map. Raises ModelFormatError for data that is damaged or beyond the limits."""

    def __init__(self, data: bytes) -> None:
        self._units, self._replacements = unpacked(data)
        check_replacements(self._replacements)
        check_trie(self._units, self._replacements)
        self._root = children_of(self._units, 0)
        self._step = lru_cache(CACHED_STEPS)(self._walk)

    def normalize(self, text: str) -> str:
        """SentencePiece's normalization: replaces the longest string of the map at each position."""
        step, root = self._step, self._root
        parts: list[str] = []
        at, n = 0, len(text)
        while at < n:
            found, node = step(root, text[at])
            end = at + 1
            best = text[at] if found is None else found
            longest = end
            while node != NOWHERE and end < n:
                found, node = step(node, text[end])
                end += 1
                if found is not None:
                    best, longest = found, end
            parts.append(best)
            at = longest
        return "".join(parts)

    def normalize_clusters(self, clusters: Iterable[str]) -> str:
        """The normalization of `tokenizers` (normalizers/precompiled.rs), for models with a tokenizer.json.

        A grapheme cluster below 6 bytes is replaced as a whole by the shortest string of the map that it
        begins with, whatever follows in the cluster; other clusters are replaced character by character.
        """
        return "".join(map(self._cluster, clusters))

    def _cluster(self, cluster: str) -> str:
        if len(cluster) == 1:
            return self._character(cluster)
        found = self._shortest(cluster) if len(cluster.encode()) < SHORT else None
        return "".join(map(self._character, cluster)) if found is None else found

    def _shortest(self, text: str) -> str | None:
        found, node = None, self._root
        for char in text:
            if found is not None or node == NOWHERE:
                break
            found, node = self._step(node, char)
        return found

    def _character(self, char: str) -> str:
        found = self._step(self._root, char)[0]
        return char if found is None else found

    def _walk(self, node: int, char: str) -> Step:
        """Advances from `node` by a whole character."""
        units, unit = self._units, 0
        for byte in char.encode():
            node ^= byte
            unit = units[node] if node < len(units) else VALUE
            if byte == 0 or unit & LABEL != byte:
                return None, NOWHERE
            node ^= offset(unit)
        return self._replacement(units[node]) if unit & LEAF else None, node

    def _replacement(self, unit: int) -> str:
        start = unit & ~VALUE
        return self._replacements[start : self._replacements.index(0, start)].decode()


def unpacked(data: bytes) -> tuple[array[int], bytes]:
    """The units of the trie, and the replacements."""
    size = int.from_bytes(data[:4], "little")
    if size % 4 or not 4 <= size <= len(data) - 4:
        raise ModelFormatError(
            f"charsmap: a trie of {size} bytes in {len(data)} bytes, expected a multiple of 4 that fits",
            size=size,
        )
    units = array("I", data[4 : 4 + size])
    if sys.byteorder == "big":
        units.byteswap()
    return units, data[4 + size :]


def offset(unit: int) -> int:
    return (unit >> 10 & 0x1FFFFF) << (8 if unit & WIDE else 0)


def children_of(units: array[int], index: int) -> int:
    """The base index of a unit's children: a child is at this index xor its byte."""
    return index ^ offset(units[index])


def check_replacements(replacements: bytes) -> None:
    try:
        replacements.decode()
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"charsmap: replacements are not UTF-8 at byte {error.start}") from None
    if not replacements.endswith(b"\0"):
        raise ModelFormatError("charsmap: the last replacement has no end; the data is truncated")


def check_trie(units: array[int], replacements: bytes) -> None:
    """Checks every unit that a key reaches: its value is readable, and no key exceeds MAX_KEY.

    The check runs level by level, since the trie shares branches: one unit may end many keys.
    """
    parents: dict[int, list[int]] = {}
    for index, unit in enumerate(units):
        if 0 < unit & LABEL <= 0xFF:
            parents.setdefault(index ^ (unit & 0xFF), []).append(index)
    level, known = {children_of(units, 0)}, set[int]()
    for _ in range(MAX_KEY):
        reached = [index for node in level for index in parents.get(node, ())]
        check_values(units, {index for index in reached if units[index] & LEAF} - known, replacements)
        known.update(reached)
        level = {children_of(units, index) for index in reached}
    if any(node in parents for node in level):
        raise ModelFormatError(f"charsmap: a key has more than {MAX_KEY} bytes", limit=MAX_KEY)


def check_values(units: array[int], ends: Iterable[int], replacements: bytes) -> None:
    """Checks that the values of these units point to characters, with an end within MAX_REPLACEMENT."""
    for index in ends:
        at = children_of(units, index)
        start = units[at] if at < len(units) else 0
        place = start - VALUE
        if not 0 <= place < len(replacements) or replacements[place] & 0xC0 == 0x80:
            raise ModelFormatError(f"charsmap: unit {index} has no readable value", unit=index)
        if replacements.find(0, place, place + MAX_REPLACEMENT + 1) < 0:
            raise ModelFormatError(
                f"charsmap: the replacement at {place} has more than {MAX_REPLACEMENT} bytes",
                limit=MAX_REPLACEMENT,
            )

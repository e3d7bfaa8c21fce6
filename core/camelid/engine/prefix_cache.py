"""The index of the prefix cache: pages of state by their own tokens and those of all pages before them.

A page's key is a hash of its parent's key and its own tokens (Kwon et al., SOSP 2023). A hit compares the
tokens, so that a hash collision is a miss. The last page of an answer is rarely full: it is stored as a tail,
found by its parent's key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack

Tokens = tuple[int, ...]


@dataclass(slots=True, eq=False)
class CachedPage:
    """Up to a page of tokens after `parent`, and the units with their state, by group.

    A group may be missing: window groups free pages, and a recurrent group has a unit only where a request
    ended.
    """

    key: bytes
    parent: bytes
    tokens: Tokens
    units: dict[str, int] = field(default_factory=dict[str, int])


def root_key(salt: str) -> bytes:
    """The parent key of first pages. Requests with different salts share nothing."""
    # A salt may be any text; a lone surrogate, which UTF-8 cannot encode, is allowed.
    return blake2b(salt.encode(errors="surrogatepass"), digest_size=16).digest()


def page_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The key of a full page."""
    return blake2b(parent + pack(f"<{len(tokens)}I", *tokens), digest_size=16).digest()


class PrefixCache:
    """The cached pages by key, the tails by parent key, and both by unit."""

    def __init__(self, page_rows: int) -> None:
        self.page_rows = page_rows
        self._pages: dict[bytes, CachedPage] = {}
        self._tails: dict[bytes, CachedPage] = {}  # by parent: the entry written last
        self._entries: dict[tuple[str, int], CachedPage] = {}

    def walk(self, token_ids: Sequence[int], salt: str) -> Iterator[tuple[bytes, CachedPage | None]]:
        """Yields the key and entry of each full page of these tokens; None for an uncached page."""
        parent, n = root_key(salt), self.page_rows
        for at in range(0, len(token_ids) - n + 1, n):
            tokens = tuple(token_ids[at : at + n])
            key = page_key(parent, tokens)
            entry = self._pages.get(key)
            yield key, entry if entry and (entry.tokens, entry.parent) == (tokens, parent) else None
            parent = key

    def tail(self, parent: bytes, tokens: Sequence[int]) -> tuple[CachedPage, int] | None:
        """The partial page after `parent`, and the number of its rows that match these tokens."""
        entry = self._tails.get(parent)
        if entry is None:
            return None
        pairs = zip(entry.tokens, tokens, strict=False)
        n = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(entry.tokens), len(tokens)))
        return (entry, n) if n else None

    def add_page(self, parent: bytes, tokens: Tokens) -> CachedPage:
        """The entry of a full page, new or existing."""
        key = page_key(parent, tokens)
        cached = self._pages.get(key)
        if cached and (cached.tokens, cached.parent) == (tokens, parent):
            return cached
        self._pages[key] = entry = CachedPage(key, parent, tokens)
        return entry

    def add_tail(self, parent: bytes, tokens: Tokens) -> tuple[CachedPage, CachedPage | None]:
        """A new entry of a partial page, and the entry that it replaces."""
        replaced, entry = self._tails.get(parent), CachedPage(b"", parent, tokens)
        self._tails[parent] = entry
        return entry, replaced

    def add_unit(self, entry: CachedPage, group: str, unit: int) -> None:
        """Records that the entry's state in this group is in this unit."""
        entry.units[group] = unit
        self._entries[group, unit] = entry

    def remove_unit(self, group: str, unit: int) -> None:
        """Removes a unit from its entry. An entry without units is removed."""
        entry = self._entries.pop((group, unit), None)
        if entry is None:
            return
        del entry.units[group]
        if not entry.units:
            self._remove(entry)

    def _remove(self, entry: CachedPage) -> None:
        if entry.key:
            if self._pages.get(entry.key) is entry:
                del self._pages[entry.key]
        elif self._tails.get(entry.parent) is entry:
            del self._tails[entry.parent]

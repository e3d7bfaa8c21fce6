"""The prefix cache: computed pages of state by their tokens, over all state groups.

A page's key is a hash of its parent's key and its own tokens (Kwon et al., SOSP 2023). A hit compares the
tokens, so that a hash collision is a miss. The last page of an answer is rarely full: it is stored as a tail.
The pages after one parent, full ones and tails, are its children; a hit may end with the first rows of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import pack

from camelid.engine.allocation import PAGED, RECURRENT, STATIC, CacheAllocation, UnitPool
from camelid.plan.plan import StateSpec

Tokens = tuple[int, ...]


@dataclass(slots=True, eq=False)
class CachedPage:
    """Up to a page of tokens after `parent`, and the units with their state, by group.

    A group may be missing: window groups free pages, and a recurrent group has a unit only where a request
    ended and at checkpoints.
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
    """The cached pages by key, full pages and tails by parent key, and all by unit."""

    def __init__(self, page_rows: int) -> None:
        self.page_rows = page_rows
        self._pages: dict[bytes, CachedPage] = {}
        self._children: dict[bytes, list[CachedPage]] = {}
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

    def beginnings(self, parent: bytes, tokens: Sequence[int]) -> list[tuple[CachedPage, int]]:
        """The children of `parent` that begin with some of these tokens, and how many rows of each match.

        The most rows first; of as many, the latest entry. A page that matches in full is no beginning.
        """
        children = reversed(self._children.get(parent, ()))
        matches = [(child, n_common(child.tokens, tokens)) for child in children]
        return sorted((m for m in matches if 0 < m[1] < self.page_rows), key=lambda match: -match[1])

    def add_page(self, parent: bytes, tokens: Tokens) -> CachedPage:
        """The entry of a full page, new or existing."""
        key = page_key(parent, tokens)
        cached = self._pages.get(key)
        if cached and (cached.tokens, cached.parent) == (tokens, parent):
            return cached
        self._pages[key] = entry = CachedPage(key, parent, tokens)
        self._children.setdefault(parent, []).append(entry)
        return entry

    def add_tail(self, parent: bytes, tokens: Tokens) -> tuple[CachedPage, list[CachedPage]]:
        """A new entry of a partial page, and the tails that it replaces: those with which it begins."""
        siblings = self._children.setdefault(parent, [])
        replaced = [each for each in siblings if not each.key and tokens[: len(each.tokens)] == each.tokens]
        entry = CachedPage(b"", parent, tokens)
        siblings.append(entry)
        return entry, replaced

    def add_unit(self, entry: CachedPage, group: str, unit: int) -> None:
        """Records that the entry's state in this group is in this unit."""
        entry.units[group] = unit
        self._entries[group, unit] = entry

    def units(self) -> list[tuple[str, int]]:
        """Every cached unit, with its group."""
        return list(self._entries)

    def n_rows_in(self, group: str, unit: int) -> int:
        """The cached rows of a unit; 0 for one without an entry."""
        entry = self._entries.get((group, unit))
        return len(entry.tokens) if entry else 0

    def remove_unit(self, group: str, unit: int) -> None:
        """Removes a unit from its entry. An entry without units is removed."""
        entry = self._entries.pop((group, unit), None)
        if entry is None:
            return
        del entry.units[group]
        if not entry.units:
            self._remove(entry)

    def _remove(self, entry: CachedPage) -> None:
        siblings = self._children[entry.parent]
        siblings.remove(entry)
        if not siblings:
            del self._children[entry.parent]
        if entry.key and self._pages.get(entry.key) is entry:
            del self._pages[entry.key]


def n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


PageWalk = list[tuple[bytes, CachedPage | None]]


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The longest prefix that every group can serve: full pages, then a page of which some rows match.

    `units` by group: the unit of each page from the group's `first_page` on, 0 before it; one unit for a
    recurrent group. `n_known` are the rows of the full pages that paged groups have, at least `n_full` pages.
    """

    n_rows: int
    n_full: int
    key: bytes  # key of the last full page, or of the root
    units: Mapping[str, list[int]]
    first_page: Mapping[str, int]
    n_known: int = 0


class PrefixReuse:
    """The prefix cache of one engine, with the needs of each group kind.

    A paged group needs every page, a window group the pages within the next row's window, a recurrent group
    the slot written after exactly as many rows, which exists only where a request ended and at checkpoints.
    """

    def __init__(self, states: Sequence[StateSpec], pools: Mapping[str, UnitPool], page_rows: int) -> None:
        self.page_rows = page_rows
        self._pools = pools
        self._cache = PrefixCache(page_rows)
        # Windows first: their pages are missing more often, and one missing page ends the check.
        self._paged = sorted((s for s in states if s.kind in PAGED), key=lambda s: not s.window)
        self._windowless = [s.name for s in states if s.kind == "paged"]
        self._recurrent = [s.name for s in states if s.kind == RECURRENT]
        self._is_enabled = bool(self._paged or self._recurrent) and all(s.kind != STATIC for s in states)

    def on_evict(self, group: str, unit: int) -> None:
        """Removes an evicted unit from the cache."""
        self._cache.remove_unit(group, unit)

    def invalidate(self, group: str, unit: int) -> None:
        """Removes a referenced unit from the cache before its owner writes to it."""
        self._cache.remove_unit(group, unit)
        self._pools[group].unmark_cached(unit)

    def forget_all(self) -> None:
        """Removes every unit from the cache."""
        for group, unit in self._cache.units():
            self.invalidate(group, unit)

    def n_rows_in(self, group: str, unit: int) -> int:
        """The cached rows of a unit; 0 for one that is not cached."""
        return self._cache.n_rows_in(group, unit)

    # Matching

    def match_prefix(self, token_ids: Sequence[int], salt: str, most: int) -> PrefixHit:
        """The longest cached prefix of at most `most` rows."""
        miss = PrefixHit(0, 0, root_key(salt), {}, {s.name: 0 for s in self._paged})
        if not self._is_enabled or most < 1:
            return miss
        prefix = token_ids[:most]
        walk = self._walk(prefix, salt)
        hits = (self._match_pages(walk, n, prefix, miss.key) for n in range(len(walk), -1, -1))
        known = len(walk) * self.page_rows if self._windowless else 0
        return replace(next((hit for hit in hits if hit), miss), n_known=known)

    def _walk(self, token_ids: Sequence[int], salt: str) -> PageWalk:
        """Keys and entries of full pages, up to the first page that a paged group lacks."""
        walk: PageWalk = []
        for key, entry in self._cache.walk(token_ids, salt):
            if self._windowless and not (entry and all(name in entry.units for name in self._windowless)):
                break
            walk.append((key, entry))
        return walk

    def _match_pages(self, walk: PageWalk, n: int, token_ids: Sequence[int], root: bytes) -> PrefixHit | None:
        """The hit of the first `n` full pages with the first rows of a page behind them, or without."""
        key, at = walk[n - 1][0] if n else root, n * self.page_rows
        for page, n_more in self._cache.beginnings(key, token_ids[at : at + self.page_rows]):
            is_whole = n_more == len(page.tokens)
            end = PrefixHit(at + n_more, n, key, {}, {})
            hit = self._hit(walk, end, page) if self._can_resume(page, is_whole) else None
            if hit:
                return hit
        if n and self._can_resume(walk[n - 1][1], True):
            return self._hit(walk, PrefixHit(at, n, key, {}, {}), None)
        return None

    def _can_resume(self, last: CachedPage | None, is_complete: bool) -> bool:
        """True if no group is recurrent, or if every recurrent slot is cached at exactly this row."""
        if not self._recurrent:
            return True
        return is_complete and last is not None and all(group in last.units for group in self._recurrent)

    def _hit(self, walk: PageWalk, end: PrefixHit, part: CachedPage | None) -> PrefixHit | None:
        """The hit with its units, if every group has the units that it needs. `part` matches in part."""
        last = part or walk[end.n_full - 1][1]
        units = {group: [last.units[group]] for group in self._recurrent if last}
        first = {s.name: first_page(s, end.n_rows) for s in self._paged}
        for group, start in first.items():
            entries = [entry for _, entry in walk[start : end.n_full]] + ([part] if part else [])
            cached = [entry.units.get(group, 0) if entry else 0 for entry in entries]
            if not all(cached):
                return None
            units[group] = [0] * start + cached
        return replace(end, units=units, first_page=first)

    # Pinning

    def pin(self, hit: PrefixHit) -> None:
        """Adds a reference to every unit of a hit."""
        for group, unit in _units(hit):
            self._pools[group].share(unit)

    def unpin(self, hit: PrefixHit) -> None:
        """Removes the references of `pin`."""
        for group, unit in _units(hit):
            self._pools[group].free(unit)

    # Adding

    def cache_pages(self, allocation: CacheAllocation, token_ids: Sequence[int], n_rows: int) -> None:
        """Adds the full pages of an allocation's first `n_rows` retired rows to the cache."""
        while self._is_enabled and (allocation.n_hashed + 1) * self.page_rows <= n_rows:
            at = allocation.n_hashed * self.page_rows
            tokens = tuple(token_ids[at : at + self.page_rows])
            units = self._page_units(allocation, allocation.n_hashed)
            units |= (
                self._slot_units(allocation, at + self.page_rows) if at + self.page_rows == n_rows else {}
            )
            if units:
                self._insert(self._cache.add_page(allocation.key, tokens), units)
            allocation.key = page_key(allocation.key, tokens)
            allocation.n_hashed += 1

    def cache_finished(self, allocation: CacheAllocation, token_ids: Sequence[int], n_rows: int) -> None:
        """Adds all retired rows of a finished sequence to the cache, with its partial last page."""
        self.cache_pages(allocation, token_ids, n_rows)
        at = allocation.n_hashed * self.page_rows
        units = self._page_units(allocation, allocation.n_hashed) | self._slot_units(allocation, n_rows)
        if self._is_enabled and at < n_rows and units:
            entry, replaced = self._cache.add_tail(allocation.key, tuple(token_ids[at:n_rows]))
            for group, unit in [each for tail in replaced for each in tail.units.items()]:
                self.invalidate(group, unit)
            self._insert(entry, units)

    def _page_units(self, allocation: CacheAllocation, page: int) -> dict[str, int]:
        """Units of one page, by paged group."""
        return {s.name: unit for s in self._paged if (unit := _at(allocation.pages[s.name], page))}

    def _slot_units(self, allocation: CacheAllocation, n_rows: int) -> dict[str, int]:
        """Units of the recurrent slots that were written after exactly `n_rows` rows, by group."""
        rows = allocation.slot_rows
        slots = (
            (g, next((u for u in allocation.slots[g] if rows.get(u) == n_rows), 0)) for g in self._recurrent
        )
        return {group: unit for group, unit in slots if unit}

    def _insert(self, entry: CachedPage, units: Mapping[str, int]) -> None:
        """Adds units to an entry, for the groups that the entry lacks."""
        for group, unit in units.items():
            if group not in entry.units:
                self.invalidate(group, unit)  # the unit may belong to a tail entry
                self._cache.add_unit(entry, group, unit)
                self._pools[group].mark_cached(unit)


def first_page(state: StateSpec, n_rows: int) -> int:
    """The first page within the window of the row after `n_rows` rows."""
    return max(n_rows - state.window + 1, 0) // state.unit_rows if state.window else 0


def _at(pages: Sequence[int], page: int) -> int:
    return pages[page] if page < len(pages) else 0


def _units(hit: PrefixHit) -> Iterator[tuple[str, int]]:
    return ((group, unit) for group, units in hit.units.items() for unit in units if unit)

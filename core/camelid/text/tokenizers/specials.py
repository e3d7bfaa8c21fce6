"""Tokens that text may name outright, found as `tokenizers`' AddedVocabulary finds them.

The longest token at the leftmost place counts, then the search goes on behind it. A match that may not count
(a steering token in text that is not trusted, half a word where a whole one is asked for) is text, and so are
shorter tokens within it. Tokens with `normalized` are looked for in what normalising makes of the stretches
between the others.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from camelid.errors import ModelFormatError
from camelid.text.unicode_tables import compile_published

Run: TypeAlias = tuple[int, int]
Normalize: TypeAlias = Callable[[str], str]

# A place costs up to so many characters of copying and comparing; the longest known token has 512.
MAX_NAME = 1024


@dataclass(frozen=True, slots=True)
class Named:
    """A token by its name in a text. `steering`: recognised in trusted text only.

    `left`, `right`: the whitespace beside it goes with it. `whole`: not amid or beside letters.
    """

    text: str
    token_id: int
    steering: bool = False
    left: bool = False
    right: bool = False
    whole: bool = False
    normalized: bool = False


class Finder:
    """The matches of many names in one pass: O(log n) steps a place, whatever the names.

    Names lie sorted, each knows its longest proper prefix among them, so the longest that begins a text is
    the last one sorted before it, or on that one's way down by prefixes; skips make that way short.
    """

    def __init__(self, named: Iterable[Named]) -> None:
        self._named = sorted(named, key=lambda one: one.text)
        self._names = [one.text for one in self._named]
        self._shorter: list[int] = []
        self._skip: list[int] = []
        self._link()
        self._longest: dict[str, int] = {}
        for name in self._names:
            self._longest[name[0]] = max(self._longest.get(name[0], 0), len(name))
        firsts = "".join(map(re.escape, self._longest))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def _link(self) -> None:
        """Prefixes, and skips over many of them at once (skew-binary, as in Myers's random-access stacks)."""
        depth: list[int] = []
        way: list[int] = []
        for i, name in enumerate(self._names):
            while way and not name.startswith(self._names[way[-1]]):
                way.pop()
            parent = way[-1] if way else -1
            hop = self._skip[parent] if way else -1
            far = self._skip[hop] if hop >= 0 else -1
            even = hop >= 0 and depth[parent] - depth[hop] == depth[hop] - (depth[far] if far >= 0 else 0)
            self._shorter.append(parent)
            self._skip.append(far if even else parent)
            depth.append(depth[parent] + 1 if way else 1)
            way.append(i)

    def __bool__(self) -> bool:
        return bool(self._named)

    def matches(self, text: str, trusted: Sequence[Run]) -> Iterator[tuple[int, Named]]:
        """(start, token) of every match that may count, left to right; none overlaps another."""
        at = 0
        while (found := self._first and self._first.search(text, at)) is not None:
            at = found.start()
            named, behind = self._counting(text, at, trusted)
            if named:
                yield at, named
            at = behind

    def _counting(self, text: str, at: int, trusted: Sequence[Run]) -> tuple[Named | None, int]:
        """The token that counts at this place, if one does, and where to look on."""
        named = self._longest_at(text, at, len(text))
        if named is None:
            return None, at + 1
        end = at + len(named.text)
        if not named.steering or covers(trusted, at, end):
            return named, end
        run = next(iter(clipped(trusted, at, end)), None)
        if run is None:
            return None, end
        # A border of trust runs through it: what is on its other side must not take a token away.
        named = self._longest_at(text, at, at + run[1]) if run[0] == 0 else None
        return named, at + (len(named.text) if named else 1)

    def _longest_at(self, text: str, at: int, end: int) -> Named | None:
        """The longest name that `text` goes on with from `at`, and that ends by `end`."""
        names, here = self._names, text[at : min(end, at + self._longest[text[at]])]
        i = bisect_right(names, here) - 1
        while i >= 0 and not here.startswith(names[i]):
            skip = self._skip[i]
            i = self._shorter[i] if skip < 0 or here.startswith(names[skip]) else skip
        return self._named[i] if i >= 0 else None


class Specials:
    """Cuts texts at the tokens that they name. Raises ModelFormatError for a name out of all proportion."""

    def __init__(self, named: Iterable[Named], normalize: Normalize | None = None) -> None:
        every = [one for one in named if one.text]
        self.ids = {one.text: one.token_id for one in every}
        long = next((one.text for one in every if len(one.text) > MAX_NAME), None)
        if long is not None:
            raise ModelFormatError(
                f"tokenizer: the token {long[:40]!r}… has {len(long)} characters, but a text may name "
                f"tokens of at most {MAX_NAME}",
                token=long[:40],
                got=len(long),
                want=MAX_NAME,
            )
        self._normalize = normalize
        self._raw = Finder(one for one in every if not one.normalized)
        self._normal = Finder(renamed(every, normalize))

    def partition(self, text: str, trusted: Sequence[Run]) -> Iterator[str | int]:
        """Cut `text` at the tokens it names: the stretches between them, normalised, and their ids."""
        for part in cut(self._raw, text, trusted):
            if isinstance(part, int):
                yield part
            elif self._normalize is None and not self._normal:
                yield text[part[0] : part[1]]
            else:
                yield from self._within(text[slice(*part)], clipped(trusted, *part))

    def _within(self, stretch: str, trusted: Sequence[Run]) -> Iterator[str | int]:
        normal = self._normalize(stretch) if self._normalize else stretch
        if self._normal and self._normalize:
            trusted = carried(stretch, normal, trusted, self._normalize)
        for part in cut(self._normal, normal, trusted):
            yield part if isinstance(part, int) else normal[slice(*part)]


def renamed(named: Iterable[Named], normalize: Normalize | None) -> Iterator[Named]:
    """The tokens with `normalized`, as normalised text has them; of two with one name the first counts."""
    found: dict[str, Named] = {}
    for one in named:
        if one.normalized:
            name = normalize(one.text) if normalize else one.text
            if name:
                found.setdefault(
                    name, Named(name, one.token_id, one.steering, one.left, one.right, one.whole)
                )
    return iter(found.values())


def cut(finder: Finder, text: str, trusted: Sequence[Run]) -> Iterator[int | Run]:
    """Ids of the tokens that `text` names, and where the stretches between them begin and end."""
    start = seen = 0  # everything from some token's end to `seen` is whitespace
    for at, named in finder.matches(text, trusted):
        begin, end = at, at + len(named.text)
        if named.whole and not stands_alone(text, begin, end):
            continue
        if named.left:
            begin = max(start, spaces_before(text, start, begin))
        if named.right:
            end = seen = seen if end < seen else spaces_after(text, end)
        if start < begin:
            yield start, begin
        yield named.token_id
        start = end
    if start < len(text):
        yield start, len(text)


def spaces_before(text: str, start: int, end: int) -> int:
    """Where the whitespace before `end` begins; not before `start`."""
    space = compile_published(r"\s")
    while end > start and space.match(text, end - 1):
        end -= 1
    return end


def spaces_after(text: str, start: int) -> int:
    """Where the whitespace from `start` on ends."""
    found = compile_published(r"\s+").match(text, start)
    return found.end() if found else start


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether no letter, digit or the like is next to text[start:end]."""
    word = compile_published(r"\w")
    return not (start > 0 and word.match(text, start - 1)) and not word.match(text, end)


def covers(runs: Sequence[Run], start: int, end: int) -> bool:
    """Whether one of the sorted, disjoint runs holds all of start … end."""
    index = bisect_right(runs, start, key=lambda run: run[0]) - 1
    return index >= 0 and end <= runs[index][1]


def clipped(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """The runs within start … end, counted from `start`."""
    first = bisect_right(runs, start, key=lambda run: run[1])
    last = bisect_left(runs, end, key=lambda run: run[0])
    return [(max(run[0] - start, 0), min(run[1], end) - start) for run in runs[first:last]]


def carried(stretch: str, normal: str, trusted: Sequence[Run], normalize: Normalize) -> list[Run]:
    """Where the normalised stretch is trusted: nowhere, if normalising mixes it with text that is not."""
    borders = [0, *(border for run in trusted for border in run), len(stretch)]
    parts = [normalize(stretch[a:b]) if a < b else "" for a, b in pairwise(borders)]
    if "".join(parts) != normal:
        return []
    ends = [0, *accumulate(map(len, parts))]
    return list(zip(ends[1::2], ends[2::2], strict=False))

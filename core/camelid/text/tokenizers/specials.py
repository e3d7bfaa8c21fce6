"""Named tokens of a text, found by the rules of `tokenizers`' AddedVocabulary.

The longest token at the leftmost position matches, and the search continues after it. A rejected match (a
control token in untrusted text, or half a word for a token with `whole`) is text, and so are shorter tokens
within it. Tokens with `normalized` are searched in the normalized stretches between the other tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TypeAlias

from camelid.errors import ModelFormatError
from camelid.text.unicode_tables import compile_published

Run: TypeAlias = tuple[int, int]
Normalize: TypeAlias = Callable[[str], str]

# Each position costs up to MAX_NAME characters of copying and comparing; the longest known token has 512.
MAX_NAME = 1024


@dataclass(frozen=True, slots=True)
class Named:
    """A token that text may name.

    `is_control`: recognized in trusted text only. `left`, `right`: the token includes the whitespace on that
    side. `whole`: rejected beside a word character. `normalized`: searched in normalized text.
    """

    text: str
    token_id: int
    is_control: bool = False
    left: bool = False
    right: bool = False
    whole: bool = False
    normalized: bool = False


class Finder:
    """Search for many names in one pass over a text: O(log n) steps per position for n names.

    Names are sorted, and each is linked to its longest proper prefix among the names. The longest name at the
    start of a text is the last name sorted before the text, or a prefix of that name; skip links shorten the
    walk along the prefixes.
    """

    def __init__(self, named: Iterable[Named]) -> None:
        self._named = sorted(named, key=lambda token: token.text)
        self._names = [token.text for token in self._named]
        self._shorter: list[int] = []
        self._skip: list[int] = []
        self._link()
        self._longest: dict[str, int] = {}
        for name in self._names:
            self._longest[name[0]] = max(self._longest.get(name[0], 0), len(name))
        firsts = "".join(map(re.escape, self._longest))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def _link(self) -> None:
        """Links to prefixes, and skip links over many of them (skew-binary; Myers's random-access stacks)."""
        depth: list[int] = []
        path: list[int] = []  # the prefixes of the current name, shortest first
        for i, name in enumerate(self._names):
            while path and not name.startswith(self._names[path[-1]]):
                path.pop()
            parent = path[-1] if path else -1
            near = self._skip[parent] if path else -1
            far = self._skip[near] if near >= 0 else -1
            even = near >= 0 and depth[parent] - depth[near] == depth[near] - (depth[far] if far >= 0 else 0)
            self._shorter.append(parent)
            self._skip.append(far if even else parent)
            depth.append(depth[parent] + 1 if path else 1)
            path.append(i)

    def __bool__(self) -> bool:
        return bool(self._named)

    def matches(self, text: str, trusted: Sequence[Run]) -> Iterator[tuple[int, Named]]:
        """Yields (start, token) of every accepted match, left to right, without overlaps."""
        at = 0
        while (match := self._first and self._first.search(text, at)) is not None:
            at = match.start()
            named, following = self._accepted(text, at, trusted)
            if named:
                yield at, named
            at = following

    def _accepted(self, text: str, at: int, trusted: Sequence[Run]) -> tuple[Named | None, int]:
        """The token accepted at a position, or None, and the next position to search."""
        named = self._longest_at(text, at, len(text))
        if named is None:
            return None, at + 1
        end = at + len(named.text)
        if not named.is_control or covers(trusted, at, end):
            return named, end
        run = next(iter(clipped(trusted, at, end)), None)
        if run is None:
            return None, end
        # Untrusted text after the border of trust must not hide a shorter token before the border.
        named = self._longest_at(text, at, at + run[1]) if run[0] == 0 else None
        return named, at + (len(named.text) if named else 1)

    def _longest_at(self, text: str, at: int, end: int) -> Named | None:
        """The token with the longest name at position `at` that ends by `end`, or None."""
        names, prefix = self._names, text[at : min(end, at + self._longest[text[at]])]
        i = bisect_right(names, prefix) - 1
        while i >= 0 and not prefix.startswith(names[i]):
            skip = self._skip[i]
            i = self._shorter[i] if skip < 0 or prefix.startswith(names[skip]) else skip
        return self._named[i] if i >= 0 else None


class Specials:
    """Cuts texts at their named tokens. Raises ModelFormatError for a name longer than MAX_NAME."""

    def __init__(self, named: Iterable[Named], normalize: Normalize | None = None) -> None:
        tokens = [token for token in named if token.text]
        self.ids = {token.text: token.token_id for token in tokens}
        long = next((token.text for token in tokens if len(token.text) > MAX_NAME), None)
        if long is not None:
            raise ModelFormatError(
                f"tokenizer: the token {long[:40]!r}… has {len(long)} characters, "
                f"expected at most {MAX_NAME}",
                token=long[:40],
                got=len(long),
                want=MAX_NAME,
            )
        self._normalize = normalize
        self._raw = Finder(token for token in tokens if not token.normalized)
        self._normal = Finder(renamed(tokens, normalize))

    def partition(self, text: str, trusted: Sequence[Run]) -> Iterator[str | int]:
        """Yields the ids of the named tokens in `text`, and the normalized stretches between them."""
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
    """The tokens with `normalized`, under their normalized names; the first of equal names counts."""
    by_name: dict[str, Named] = {}
    for token in named:
        name = normalize(token.text) if token.normalized and normalize else token.text
        if token.normalized and name:
            by_name.setdefault(name, replace(token, text=name, normalized=False))
    return iter(by_name.values())


def cut(finder: Finder, text: str, trusted: Sequence[Run]) -> Iterator[int | Run]:
    """Yields the ids of the named tokens in `text`, and (start, end) of the stretches between them."""
    start = seen = 0  # the text from the end of an earlier token to `seen` is whitespace
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
    """Start of the whitespace before `end`, at least `start`."""
    space = compile_published(r"\s")
    while end > start and space.match(text, end - 1):
        end -= 1
    return end


def spaces_after(text: str, start: int) -> int:
    """End of the whitespace that begins at `start`."""
    match = compile_published(r"\s+").match(text, start)
    return match.end() if match else start


def stands_alone(text: str, start: int, end: int) -> bool:
    """True if no word character is adjacent to text[start:end]."""
    word = compile_published(r"\w")
    return not (start > 0 and word.match(text, start - 1)) and not word.match(text, end)


def covers(runs: Sequence[Run], start: int, end: int) -> bool:
    """True if one of the sorted, disjoint runs covers start … end."""
    index = bisect_right(runs, start, key=lambda run: run[0]) - 1
    return index >= 0 and end <= runs[index][1]


def clipped(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """The runs within start … end, relative to `start`."""
    first = bisect_right(runs, start, key=lambda run: run[1])
    last = bisect_left(runs, end, key=lambda run: run[0])
    return [(max(run[0] - start, 0), min(run[1], end) - start) for run in runs[first:last]]


def carried(stretch: str, normal: str, trusted: Sequence[Run], normalize: Normalize) -> list[Run]:
    """Trusted runs of the normalized stretch; none if normalization mixes trusted and untrusted text."""
    borders = [0, *(border for run in trusted for border in run), len(stretch)]
    parts = [normalize(stretch[a:b]) if a < b else "" for a, b in pairwise(borders)]
    if "".join(parts) != normal:
        return []
    ends = [0, *accumulate(map(len, parts))]
    return list(zip(ends[1::2], ends[2::2], strict=False))

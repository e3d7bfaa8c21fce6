"""Patterns of module names, as PEFT's `rank_pattern` and `alpha_pattern` have them.

PEFT runs each key as a regular expression, whose time is unbounded. The part of the syntax that names of
modules need runs here in time (length of the name) x (length of the pattern): characters, `.`, `\\d`, `\\w`,
`[...]`, `(a|b)`, `*`, `+`, `?`, `^` and `$`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from camelid.errors import UnsupportedModelError, shown

T = TypeVar("T")

MAX_LENGTH = 512
MAX_ALTERNATIVES = 64
GROUP = re.compile(r"(?<!\\)\((?:\?:)?([^()\\*+?\[\]]*)\)(?![*+?{])")
CLASSES = {"d": frozenset(string.digits), "w": frozenset(string.ascii_letters + string.digits + "_")}
LITERALS = frozenset(string.ascii_letters + string.digits + "_-/")
SIGNS = ("*", "+", "?")


MAX_WORK = 1 << 22  # comparisons of a name with a pattern of plain characters; some 5 s
PLAIN = re.compile(r"[\w.\-/]*")
SLOWER = 64  # times a comparison with another pattern


def first_match(patterns: Mapping[str, T], name: str, default: T) -> T:
    """The value of the first pattern that matches a name."""
    return next((value for pattern, value in patterns.items() if matches(pattern, name)), default)


def check_work(patterns: Collection[str], n_names: int) -> None:
    """Raises UnsupportedModelError for a long pattern, and for too many comparisons with names."""
    if long := next((pattern for pattern in patterns if len(pattern) > MAX_LENGTH), ""):
        raise _unsupported(long)
    work = n_names * sum(1 if PLAIN.fullmatch(pattern) else SLOWER for pattern in patterns)
    if work > MAX_WORK:
        raise UnsupportedModelError(
            f"{len(patterns)} patterns for {n_names} modules are too many to compare; state one r and "
            "lora_alpha, and patterns for the modules that differ",
            kind="pattern",
            name=str(len(patterns)),
        )


@dataclass(frozen=True, slots=True)
class _Atom:
    """One character of these (None: any), at least once unless optional, and again if it repeats."""

    chars: frozenset[str] | None
    optional: bool = False
    repeats: bool = False


def matches(pattern: str, name: str) -> bool:
    """True if the pattern matches the name, or the part of it behind a dot, to its end.

    Raises UnsupportedModelError for syntax beyond the module's docstring.
    """
    if PLAIN.fullmatch(pattern):
        n = len(name) - len(pattern)
        is_part = n == 0 or (n > 0 and name[n - 1] == ".")
        return is_part and all(own in (".", char) for own, char in zip(pattern, name[n:], strict=True))
    choices = _alternatives(pattern)
    return any(_matches(_atoms(one, pattern), name, is_anchored=one.startswith("^")) for one in choices)


def _alternatives(pattern: str) -> Iterator[str]:
    """The pattern once for each choice of its groups."""
    pending = [pattern]
    for _ in range(MAX_ALTERNATIVES):
        if not pending:
            return
        one = pending.pop()
        group = GROUP.search(one)
        if group is None:
            yield one
        else:
            pending += [one[: group.start()] + choice + one[group.end() :] for choice in group[1].split("|")]
    if pending:
        raise _unsupported(pattern)


def _atoms(text: str, pattern: str) -> list[_Atom]:
    if len(text) > MAX_LENGTH:
        raise _unsupported(pattern)
    body = text.removeprefix("^").removesuffix("$")
    atoms: list[_Atom] = []
    at = 0
    while at < len(body):
        chars, at = _chars(body, at, pattern)
        sign = body[at : at + 1]
        at += sign in SIGNS
        atoms.append(_Atom(chars, optional=sign in ("*", "?"), repeats=sign in ("*", "+")))
    return atoms


def _chars(body: str, at: int, pattern: str) -> tuple[frozenset[str] | None, int]:
    """The characters of the atom at a position, and the position behind it."""
    char, follower = body[at], body[at + 1 : at + 2]
    if char == ".":
        return None, at + 1
    if char == "\\" and follower in CLASSES:
        return CLASSES[follower], at + 2
    if char == "\\" and follower and not follower.isalnum():
        return frozenset(follower), at + 2
    end = body.find("]", at + 2)
    if char == "[" and end > 0:
        return _set(body[at + 1 : end], pattern), end + 1
    if char in LITERALS:
        return frozenset(char), at + 1
    raise _unsupported(pattern)


def _set(inner: str, pattern: str) -> frozenset[str]:
    """Characters of `[...]` without its brackets: single ones and ranges."""
    found: set[str] = set()
    at = 0
    while at < len(inner):
        first, last = inner[at], inner[at + 2 : at + 3]
        is_range = inner[at + 1 : at + 2] == "-" and last != ""
        if first not in LITERALS | {"."} or (is_range and not first <= last <= "z"):
            raise _unsupported(pattern)
        found |= {chr(code) for code in range(ord(first), ord(last if is_range else first) + 1)}
        at += 3 if is_range else 1
    return frozenset(found)


def _matches(atoms: list[_Atom], name: str, *, is_anchored: bool) -> bool:
    """Runs all places of the pattern at once, character by character; it starts anew behind each dot."""
    places = _with_optional({0}, atoms)
    for char in name:
        taken = {i for i in places if i < len(atoms) and _takes(atoms[i], char)}
        begun = {0} if char == "." and not is_anchored else set[int]()
        repeated = {i for i in taken if atoms[i].repeats}
        places = _with_optional({i + 1 for i in taken} | repeated | begun, atoms)
    return len(atoms) in places


def _takes(atom: _Atom, char: str) -> bool:
    return atom.chars is None or char in atom.chars


def _with_optional(places: set[int], atoms: list[_Atom]) -> set[int]:
    """The places, with those behind optional atoms."""
    reached: set[int] = set()
    for first in places:
        place = first
        while place not in reached:
            reached.add(place)
            if place < len(atoms) and atoms[place].optional:
                place += 1
    return reached


def _unsupported(pattern: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the pattern {shown(pattern)} has syntax beyond names, '.', \\d, [...], (a|b), * and +; write the "
        "modules' names in rank_pattern and alpha_pattern",
        kind="pattern",
        name=pattern[:80],
    )

"""Values of a template: strings with a trust mark per character, undefined names, views, and the budget.

A plain `str` is untrusted; only `Text` carries trust, character by character. An operation that does not
handle trust therefore loses it and never grants it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeGuard, cast

from camelid.errors import TemplateError

MAX_INT_BITS = 256
MAX_DATA_DEPTH = 100  # nesting of lists and dicts; a tool's schema has about ten levels
MAX_STREAMS = 50
# Characters per step: a million steps make at most 64 MB of text and read at most 1 GB.
CHARS_MADE = 64
CHARS_READ = 1024
# str.find is linear only for longer patterns.
SHORT = 128


class Text(str):
    """A string with a mask: 1 for each character that the template wrote, 0 for those of a request."""

    __slots__ = ("mask",)
    mask: bytes

    def __new__(cls, value: str, mask: bytes) -> Self:
        text = super().__new__(cls, value)
        text.mask = mask
        return text


class Markup(Text):
    """The result of `safe` and `escape`.

    As in Jinja, `+`, `%`, join and replace escape the text added to it.
    """

    __slots__ = ()


ENTITY = re.compile("[&<>'\"]")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}


def trusted(value: str) -> Text:
    return Text(value, b"\1" * len(value))


def mask_of(value: str) -> bytes:
    return value.mask if isinstance(value, Text) else bytes(len(value))


def unmarked(value: str) -> str:
    """The same text and trust, without markup."""
    return Text(value, value.mask) if isinstance(value, Markup) else value


def marked(value: str) -> Markup:
    return value if isinstance(value, Markup) else Markup(value, mask_of(value))


def cut(value: str, where: slice) -> str:
    """A slice with its trust."""
    if isinstance(value, Text):
        return type(value)(str.__getitem__(value, where), value.mask[where])
    return value[where]


def repeated(value: str, times: int) -> str:
    return Text(str(value) * times, value.mask * times) if isinstance(value, Text) else value * times


def joined(parts: Iterable[str]) -> str:
    """The parts as one string with their trust. The caller checks its length."""
    parts = list(parts)
    text = "".join(parts)
    for part in parts:
        if isinstance(part, Text):
            return Text(text, b"".join(map(mask_of, parts)))
    return text


def runs(value: str) -> list[tuple[str, bool]]:
    """The string as (text, trusted) runs."""
    spans: list[tuple[str, bool]] = []
    mask, text, start = mask_of(value), str(value), 0
    while start < len(text):
        flag = mask[start]
        end = mask.find(1 - flag, start)
        end = len(text) if end < 0 else end
        spans.append((text[start:end], bool(flag)))
        start = end
    return spans


def mapped(value: str, change: Callable[[str], str]) -> str:
    """Applies a change of case. If it changes the length, each run of equal trust is changed on its own.

    No change of case shortens a text, so equal lengths mean a character-by-character change.
    """
    if not isinstance(value, Text):
        return change(value)
    whole = change(str(value))
    if len(whole) == len(value):
        return type(value)(whole, value.mask)
    return joined(trusted(change(t)) if flag else change(t) for t, flag in runs(value))


class Undefined:
    """A missing name, key or index: false, empty, and an error on further use."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undefined)

    def __hash__(self) -> int:
        return hash(Undefined)

    def fail(self) -> TemplateError:
        return TemplateError(f"{self.name} is undefined", name=self.name)


class Namespace:
    """namespace(): the only value that `set` can change from an inner scope."""

    def __init__(self, values: dict[str, object]) -> None:
        self.values = values

    def set(self, name: str, value: object) -> None:
        """Sets a name. Raises TemplateError for a leading underscore, as transformers does."""
        if name.startswith("_"):
            raise TemplateError(
                f"cannot set {brief(name)} of a namespace: names begin with a letter", name=name
            )
        self.values[name] = value


class Stream:
    """The result of Jinja's lazy filters (map, select, …): iterated once, always true, without a length."""

    def __init__(self, values: Iterable[object], source: object = None) -> None:
        self.values = iter(values)
        # Each stream over a stream adds a Python frame when the last one is iterated.
        self.depth = source.depth + 1 if isinstance(source, Stream) else 1
        if self.depth > MAX_STREAMS:
            raise TemplateError(
                f"more than {MAX_STREAMS} lazy filters in a row; put |list between", limit=MAX_STREAMS
            )


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The result of d.items(), d.keys() and d.values(): has a length, but no items by index."""

    kind: str
    values: list[object]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Bound:
    """A callable value of a template: a method with its object, a macro, a global function."""

    name: str
    function: Callable[..., object]


class Budget:
    """The limits of a rendering: steps, and bytes of each text. Methods raise TemplateError beyond them."""

    def __init__(self, max_steps: int, max_bytes: int) -> None:
        self.max_steps = max_steps
        self.max_bytes = max_bytes
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        """Charges steps before the work is done."""
        self.steps += steps
        if self.steps > self.max_steps:
            raise TemplateError(
                f"the template needs more than {self.max_steps} steps; shorten the input, or raise max_steps",
                limit=self.max_steps,
            )

    def text(self, length: int) -> None:
        """Charges a text before it is made, also by its length, so that all texts together are bounded."""
        if length > self.max_bytes:
            raise TemplateError(
                f"the template makes a text of {length} bytes, more than {self.max_bytes}; "
                "shorten the conversation, or raise max_bytes",
                limit=self.max_bytes,
            )
        self.spend(1 + length // CHARS_MADE)

    def read(self, value: object) -> None:
        """Charges an operation that reads a text or hashes a tuple."""
        if isinstance(value, str):
            self.spend(len(value) // CHARS_READ)
        elif isinstance(value, tuple):
            self.spend(len(cast("tuple[object, ...]", value)))

    def search(self, text: str, pattern: object, *, backward: bool = False) -> None:
        """Charges a search in a text; backward, Python may compare each character with each."""
        if isinstance(pattern, str):
            size = len(pattern) if backward else min(len(pattern), SHORT)
            self.spend(len(text) * max(size, 1) // CHARS_READ)

    def joined(self, parts: Iterable[str]) -> str:
        parts = list(parts)
        self.text(sum(map(len, parts)))
        return joined(parts)

    def items(self, values: Iterable[object]) -> list[object]:
        """A list of the values, each charged as it arrives."""
        found: list[object] = []
        for value in values:
            self.spend()
            found.append(value)
        return found

    def integer(self, value: object) -> object:
        """Returns `value`. Raises TemplateError for an integer of more than MAX_INT_BITS."""
        if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
            raise TemplateError(
                f"the template makes an integer of {value.bit_length()} bits", limit=MAX_INT_BITS
            )
        return value


def escaped(value: str, budget: Budget) -> Markup:
    """The text with HTML entities (as markupsafe writes them), as markup; markup is unchanged."""
    if isinstance(value, Markup):
        return value
    parts: list[str] = []
    at = 0
    for match in ENTITY.finditer(value):
        budget.spend()
        parts += (cut(value, slice(at, match.start())), ENTITIES[match.group()])
        at = match.end()
    return marked(budget.joined([*parts, cut(value, slice(at, None))]))


def is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


def is_dict(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, dict)


def checked_key(value: object, budget: Budget) -> object:
    """Returns `value` if it may be a dict key. Charged, since hashing nested tuples is slow."""
    budget.read(value)
    parts = value if is_list(value) and isinstance(value, tuple) else (value,)
    if any(is_list(part) or is_dict(part) for part in parts):
        raise TemplateError(f"a {type(value).__name__} cannot be a key")
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float)


def is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int)


def brief(value: object) -> str:
    """A short form of a value for error messages: containers by type only, since shared items print long."""
    if isinstance(value, str):
        return repr(str(value[:40]))
    return repr(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"


def shown(value: object, budget: Budget) -> str:
    """The text that `{{ }}` prints: Python's str of plain data, empty for an undefined name."""
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    return budget.joined(representation(value, budget))


def representation(value: object, budget: Budget, depth: int = 0) -> Iterator[str]:
    """Python's repr in pieces, each charged, since lists that share items print at length."""
    budget.spend()
    checked_depth(depth)
    if is_dict(value):
        yield from bracketed("{}", ((k, v) for k, v in value.items()), budget, depth)
    elif is_list(value):
        ends = "[]" if isinstance(value, list) else "()"
        yield from bracketed(ends, ((item,) for item in value), budget, depth)
    elif isinstance(value, View):
        yield f"{value.kind}("
        yield from bracketed("[]", ((item,) for item in value.values), budget, depth)
        yield ")"
    elif value is None or isinstance(value, str | int | float | range):
        yield f"Markup({str(value)!r})" if isinstance(value, Markup) else repr(value)
    elif isinstance(value, Undefined):
        yield "Undefined"
    else:
        raise TemplateError(f"a {type(value).__name__} cannot be printed")


def bracketed(ends: str, items: Iterable[tuple[object, ...]], budget: Budget, depth: int) -> Iterator[str]:
    yield ends[0]
    n = 0
    for n, item in enumerate(items, 1):
        if n > 1:
            yield ", "
        yield from representation(item[0], budget, depth + 1)
        if len(item) == 2:
            yield ": "
            yield from representation(item[1], budget, depth + 1)
    yield ",)" if ends == "()" and n == 1 else ends[1]


def checked_depth(depth: int) -> None:
    if depth > MAX_DATA_DEPTH:
        raise TemplateError(
            f"values are nested too deep: more than {MAX_DATA_DEPTH} levels of lists and dicts",
            limit=MAX_DATA_DEPTH,
        )


def equal(left: object, right: object, budget: Budget, depth: int = 0) -> bool:
    """`==`, charged item by item, since lists that share items take long to compare."""
    budget.spend()
    budget.read(left)
    checked_depth(depth)
    if is_list(left) and is_list(right):
        same = isinstance(left, list) == isinstance(right, list) and len(left) == len(right)
        return same and all(equal(a, b, budget, depth + 1) for a, b in zip(left, right, strict=True))
    if is_dict(left) and is_dict(right):
        return left.keys() == right.keys() and all(equal(left[k], right[k], budget, depth + 1) for k in left)
    return left == right


def characters(value: str) -> Iterator[str]:
    value = unmarked(value)
    return (cut(value, slice(i, i + 1)) for i in range(len(value)))


def iterated(value: object) -> Iterable[object]:
    """The items that `for` and the list filters iterate over. Raises TemplateError for other types."""
    if isinstance(value, str):
        return characters(value)
    if isinstance(value, Stream | View):
        return value.values
    if is_list(value) or is_dict(value) or isinstance(value, range | Undefined):
        return cast("Iterable[object]", value)
    raise TemplateError(f"a {type(value).__name__} cannot be iterated")

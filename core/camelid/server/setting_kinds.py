"""Kinds of settings: each reads values of flags, environment and TOML, and names their place in errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from camelid.errors import RequestError, shown

UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
YES = frozenset({"true", "1", "on", "yes", "enabled"})  # llama.cpp's words, and `yes`
NO = frozenset({"false", "0", "off", "no", "disabled"})


class Kind(Protocol):
    """The type and range of a setting."""

    @property
    def metavar(self) -> str: ...
    def read(self, value: object, place: str) -> Any:
        """The value, from text or a TOML value. Raises RequestError with the place and the range."""
        ...


def refuse(place: str, value: object, want: str) -> NoReturn:
    raise RequestError(f"{place} is {shown(value)}, expected {want}", field=place)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds, or a word that means a value."""

    least: int = 0
    most: int = 2**31 - 1
    words: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    metavar: str = "N"

    def read(self, value: object, place: str) -> int | None:
        if str(value) in self.words:
            return self.words[str(value)]
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
            value = int(value)
        if type(value) is int and self.least <= value <= self.most:
            return value
        words = "".join(f", or {word}" for word in self.words)
        refuse(place, value, f"a whole number from {self.least} to {self.most}{words}")


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number within bounds."""

    least: float = 0.0
    most: float = 1e9
    metavar: str = "N"

    def read(self, value: object, place: str) -> float:
        number = _number(value)
        if number is not None and self.least <= number <= self.most:
            return number
        refuse(place, value, f"a number from {self.least:g} to {self.most:g}")


def _number(value: object) -> float | None:
    """A finite number, from a number or its text."""
    try:
        number = float(cast("Any", value)) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None
    is_number = number is not None and isfinite(number) and not isinstance(value, bool)
    return number if is_number else None


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds, or a text such as 90s, 5m or 24h; `never` and -1 where the setting allows them."""

    has_never: bool = False
    least: float = 0.0
    metavar: str = "SECONDS"

    def read(self, value: object, place: str) -> float:
        if self.has_never and (value == "never" or _number(value) == -1):
            return -1.0
        seconds = span(value) if isinstance(value, str) else _number(value)
        if seconds is not None and self.least <= seconds <= 1e9:
            return seconds
        never = ", or -1 for never" if self.has_never else ""
        refuse(place, value, f"seconds of at least {self.least:g}, or a text such as 5m{never}")


def span(text: str) -> float | None:
    """Seconds of a text such as 5m or 1h30m; None for any other text."""
    parts = SPAN.findall(text)
    if not parts or "".join(SPAN.split(text)[::3]).strip():
        return None
    return sum(float(number) * SECONDS[unit.lower()] for number, unit in parts)


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, or a text such as 512M, 12G or 12GiB; G is 10**9 and Gi is 2**30."""

    least: int = 0
    metavar: str = "BYTES"

    def read(self, value: object, place: str) -> int:
        found = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found:
            value = int(float(found[1]) * UNITS[(found[2] or "").lower()])
        if type(value) is int and self.least <= value < 2**63:
            return value
        refuse(place, value, f"bytes of at least {self.least:,}, such as 12G or 12GiB")


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    metavar: str = ""

    def read(self, value: object, place: str) -> bool:
        word = str(value).strip().lower()
        if word in YES or word in NO:
            return word in YES
        refuse(place, value, "true or false")


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several words."""

    words: Sequence[str]
    metavar: str = "NAME"

    def read(self, value: object, place: str) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        refuse(place, value, f"one of {', '.join(self.words)}")


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but an empty one."""

    metavar: str = "TEXT"

    def read(self, value: object, place: str) -> str:
        return value if isinstance(value, str) and value.strip() else refuse(place, value, "a text")


@dataclass(frozen=True, slots=True)
class File:
    """A path; it need not exist yet."""

    metavar: str = "FILE"

    def read(self, value: object, place: str) -> Path:
        return Path(Text().read(value, place)).expanduser()


@dataclass(frozen=True, slots=True)
class Several:
    """Several values: a TOML list, a flag given several times, or a text with commas."""

    kind: Kind
    separator: str = ","

    @property
    def metavar(self) -> str:
        return self.kind.metavar

    def read(self, value: object, place: str) -> tuple[Any, ...]:
        items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
        return tuple(
            self.kind.read(part.strip() if isinstance(part, str) else part, place)
            for item in items
            for part in (item.split(self.separator) if isinstance(item, str) and self.separator else [item])
        )


@dataclass(frozen=True, slots=True)
class Variables:
    """Names and values: a TOML table, or a JSON object as text."""

    metavar: str = "JSON"

    def read(self, value: object, place: str) -> Mapping[str, Any]:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                refuse(place, value, "a JSON object")
        if not isinstance(value, dict):
            refuse(place, value, "a JSON object")
        return cast("dict[str, Any]", value)

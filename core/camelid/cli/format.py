"""Values formatted for the terminal: sizes, facts and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
LABEL = 16  # width of a fact's name, in columns


def human(n_bytes: int) -> str:
    """A size in four digits and a decimal unit: 16.06 GB."""
    name, unit = next(((name, unit) for name, unit in UNITS if n_bytes >= unit), ("bytes", 1.0))
    return f"{n_bytes / unit:.4g} {name}"


def size(n_bytes: int) -> str:
    """A size in a decimal unit and in bytes: 16.06 GB (16,060,522,240 bytes)."""
    return f"{n_bytes:,} bytes" if n_bytes < 1000 else f"{human(n_bytes)} ({n_bytes:,} bytes)"


def line(name: str, text: str) -> str:
    """A fact's name, padded, and its text."""
    return f"{name.replace('_', ' '):<{LABEL - 1}} {text}"


def format_value(value: object) -> str:
    """A bool as yes or no, a number with separators, or text on one line without control characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def printable(text: str) -> str:
    """The text with `?` for each unprintable character: a terminal would obey escape sequences."""
    return "".join(c if c.isprintable() else "?" for c in text)


def sizes(by_name: Mapping[str, int]) -> str:
    """Sizes by name, on one line."""
    return ", ".join(f"{printable(name)} {size(n)}" for name, n in by_name.items())


def columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Table rows with padded columns; texts that begin with a digit are right-aligned."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(_padded, row, widths)).rstrip() for row in table]


def _padded(text: str, width: int) -> str:
    return text.rjust(width) if text[:1].isdigit() else text.ljust(width)

"""Values as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
LABEL = 16  # columns


def human(n_bytes: int) -> str:
    """Four digits and a decimal unit: 16.06 GB."""
    name, unit = next(((name, unit) for name, unit in UNITS if n_bytes >= unit), ("bytes", 1.0))
    return f"{n_bytes / unit:.4g} {name}"


def size(n_bytes: int) -> str:
    """The same, and every byte of it."""
    return f"{n_bytes:,} bytes" if n_bytes < 1000 else f"{human(n_bytes)} ({n_bytes:,} bytes)"


def line(name: str, text: str) -> str:
    """One fact: its name with spaces, its text."""
    return f"{name.replace('_', ' '):<{LABEL - 1}} {text}"


def shown(value: object) -> str:
    """A plain value. Text of a file stays on one line, whatever it holds."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def printable(text: str) -> str:
    """The text with a question mark for each character that could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def sizes(by_name: Mapping[str, int]) -> str:
    """Bytes by name."""
    return ", ".join(f"{printable(name)} {size(n)}" for name, n in by_name.items())


def columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows of a table, each column as wide as its widest text; numbers, known by their ends, to the right."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(_padded, row, widths)).rstrip() for row in table]


def _padded(text: str, width: int) -> str:
    return text.rjust(width) if text[:1].isdigit() else text.ljust(width)

"""Phrasing tools: `[a|b]` alternatives, typing noise, and normalization for comparison."""

import re
from collections.abc import Iterable
from itertools import product
from random import Random

CHOICE = re.compile(r"\[([^\[\]]*)\]")


def expand(template: str) -> list[str]:
    """Every expansion of a template: `[what is|what's] {x}` has two."""
    parts = [part.split("|") for part in CHOICE.split(template)]
    fixed = [parts[i] if i % 2 else ["|".join(parts[i])] for i in range(len(parts))]
    return ["".join(reading) for reading in product(*fixed)]


def expand_all(lines: str | Iterable[str]) -> tuple[str, ...]:
    """Every expansion of every non-empty line, in order, without duplicates."""
    rows = lines.splitlines() if isinstance(lines, str) else lines
    return tuple(dict.fromkeys(reading for row in rows if row.strip() for reading in expand(row.strip())))


def normalise(text: str) -> str:
    """A phrasing for comparison: lower case, single spaces, no punctuation but arithmetic signs."""
    kept = re.sub(r"[^\w{}+\-*/=' ]+", " ", text.lower().replace("’", "'"))
    return " ".join(kept.split())


def join(*parts: str) -> str:
    """Joins non-empty parts with spaces, except before punctuation."""
    return re.sub(r" +([?!.,])", r"\1", " ".join(part for part in parts if part))


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def typed(text: str, rng: Random) -> str:
    """The text in random case: mostly capitalized, often lower case, rarely upper case."""
    roll = rng.random()
    if roll < 0.55:
        return capitalised(text)
    if roll < 0.80:
        return text.lower()
    return text if roll < 0.98 else text.upper()

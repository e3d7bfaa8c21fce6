"""Cases of `camelid bench`: prefill or decode of n tokens at a depth, in parallel streams."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, Literal

import click

from camelid.engine.scheduler import MIN_PREFILL_ROWS

IN_FLIGHT = 16  # rows for steps submitted beyond the timed tokens, so that no stream reaches its context
Kind = Literal["pp", "tg"]  # prompt processing and text generation, as in llama-bench


@dataclass(frozen=True, slots=True)
class Case:
    """`n` tokens per stream after `depth` cached tokens, in `batch` parallel streams."""

    kind: Kind
    n: int
    depth: int = 0
    batch: int = 1

    def __str__(self) -> str:
        streams = f" x {self.batch}" if self.batch > 1 else ""
        return f"{self.kind}{self.n}{streams}" + (f" @ {self.depth}" if self.depth else "")

    @property
    def held(self) -> int:
        """Rows before the first timed token; decode needs at least one."""
        return self.depth if self.kind == "pp" else max(self.depth, 1)

    def rows(self, chunk: int) -> int:
        """The context that a stream needs, with `chunk` rows per step: its tokens and one that is sampled.

        The first stream decodes while the others prefill, in steps with as few as MIN_PREFILL_ROWS of their
        rows.
        """
        if self.kind == "pp":
            return self.depth + self.n + 1
        prefill_rows = min(chunk - self.batch, MIN_PREFILL_ROWS)
        ahead = 0 if self.batch == 1 else -(-self.batch * self.held // prefill_rows)
        return self.held + self.n + 1 + ahead + IN_FLIGHT

    def prompt(self, stream: int, repetition: int, vocab_size: int) -> list[int]:
        """A stream's prompt; its timed part, new in each repetition, is not in the prefix cache."""
        held = _draw(f"held {stream}", self.held, vocab_size)
        fresh = self.n if self.kind == "pp" else 0
        return held + _draw(f"timed {stream} {repetition}", fresh, vocab_size)


def _draw(seed: str, n: int, vocab_size: int) -> list[int]:
    draw = Random(seed)
    return [draw.randrange(vocab_size) for _ in range(n)]


def all_cases(
    n_prompt: tuple[int, ...], n_gen: tuple[int, ...], depths: tuple[int, ...], batches: tuple[int, ...]
) -> list[Case]:
    """Every combination except those of 0 tokens. Raises UsageError if none remains."""
    numbers: dict[Kind, tuple[int, ...]] = {"pp": n_prompt, "tg": n_gen}
    cases = [
        Case(kind, n, depth, batch)
        for kind in numbers
        for n, depth, batch in product(filter(None, numbers[kind]), depths, batches)
    ]
    if not cases:
        raise click.UsageError("-p 0 with -n 0 measures nothing; set one of them above 0")
    return cases


class Counts(click.ParamType[tuple[int, ...]]):
    """Comma-separated integers of at least `least`; 0 is allowed with `or_none`."""

    name = "counts"

    def __init__(self, least: int, *, or_none: bool = False) -> None:
        self.least, self.or_none = least, or_none

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The distinct numbers, in order. Raises UsageError for any other value."""
        words = str(value).split(",")
        if not all(word.strip().isdecimal() for word in words):
            self.fail(f"{value!r} is not a list of integers; expected 8 or 1,8", param, ctx)
        numbers = tuple(dict.fromkeys(map(int, words)))
        small = [n for n in numbers if n < self.least and not (self.or_none and n == 0)]
        if small:
            or_none = ", or 0 for none" if self.or_none else ""
            self.fail(f"{small[0]} is too small: expected at least {self.least}{or_none}", param, ctx)
        return numbers

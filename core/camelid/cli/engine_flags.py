"""The options of `run` and `chat` that say how the engine treats an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from camelid.requests.options import EngineOptions

F = TypeVar("F", bound=Callable[..., Any])

FLAGS = (
    click.option("--context-shift", is_flag=True,
                 help="Where the context is full, drop half of it and go on."),
    click.option("--keep", "n_keep", type=click.IntRange(0), metavar="N",
                 help="A shift keeps the first N tokens. Default: those that open every prompt."),
    click.option("--lookup", is_flag=True,
                 help="Guess ahead by what followed the same words before; the answer stays the same."),
)  # fmt: skip


def engine_flags(function: F) -> F:
    """--context-shift, --keep, --lookup."""
    for flag in reversed(FLAGS):
        function = flag(function)
    return function


def read_engine(given: dict[str, Any]) -> EngineOptions:
    """The options of a request; takes them out of what was given."""
    shifts, n_keep, looks = (given.pop(name) for name in ("context_shift", "n_keep", "lookup"))
    if n_keep is not None and not shifts:
        raise click.UsageError("--keep is for --context-shift; give both or none")
    options: EngineOptions = {"overflow": "shift"} if shifts else {}
    if n_keep is not None:
        options["n_keep"] = n_keep
    if looks:
        options["speculate"] = "ngram"
    return options

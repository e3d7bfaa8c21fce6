"""Engine options of `run` and `chat`: context shift and speculative decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from camelid.requests.options import EngineOptions

F = TypeVar("F", bound=Callable[..., Any])

FLAGS = (
    click.option("--context-shift", is_flag=True,
                 help="When the context is full, drop half of its tokens, oldest first, and continue."),
    click.option("--keep", "n_keep", type=click.IntRange(0), metavar="N",
                 help="Tokens that --context-shift keeps at the start. Default: opening tokens (BOS)."),
    click.option("--lookup", is_flag=True,
                 help="Draft tokens from repeated n-grams; the answer does not change."),
)  # fmt: skip


def engine_flags(function: F) -> F:
    """Adds --context-shift, --keep and --lookup."""
    for flag in reversed(FLAGS):
        function = flag(function)
    return function


def read_engine(flags: dict[str, Any]) -> EngineOptions:
    """Pops the engine flags from a command's options and returns them as request options."""
    shifts, n_keep, has_lookup = (flags.pop(name) for name in ("context_shift", "n_keep", "lookup"))
    if n_keep is not None and not shifts:
        raise click.UsageError("--keep needs --context-shift")
    options: EngineOptions = {"overflow": "shift"} if shifts else {}
    if n_keep is not None:
        options["n_keep"] = n_keep
    if has_lookup:
        options["speculate"] = "ngram"
    return options

"""The option --mmproj: the file of a model's vision tower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def mmproj_option(function: F) -> F:
    """Adds --mmproj."""
    return click.option(
        "--mmproj", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
        help="GGUF file of the model's vision tower; a directory has its own.",
    )(function)  # fmt: skip

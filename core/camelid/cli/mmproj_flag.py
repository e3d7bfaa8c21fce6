"""The options --mmproj and --no-mmproj: the file of a model's vision tower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def mmproj_option(function: F) -> F:
    """Adds --mmproj and --no-mmproj."""
    return click.option(
        "--mmproj", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
        help="GGUF file of the model's vision tower; a directory has its own.",
    )(no_mmproj_option(function))  # fmt: skip


def no_mmproj_option(function: F) -> F:
    """Adds --no-mmproj; the parameter is `mmproj_auto`, as in llama.cpp."""
    return click.option(
        "--mmproj-auto/--no-mmproj", default=True, show_default=True,
        help="Fetch the mmproj file in the repository of a hub id.",
    )(function)  # fmt: skip

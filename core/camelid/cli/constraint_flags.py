"""Options that say what an answer must follow: a grammar, a JSON schema, a regex or a choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from camelid.requests.options import ConstraintOptions

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

OPTIONS = (
    click.option("--grammar", metavar="GBNF", help="The answer follows this grammar, as llama.cpp reads it."),
    click.option("--grammar-file", type=FILE, help="The same, from a file."),
    click.option("-j", "--json-schema", metavar="SCHEMA",
                 help="The answer is JSON that this schema allows; {} is any JSON."),
    click.option("-jf", "--json-schema-file", type=FILE, help="The same, from a file."),
    click.option("--regex", metavar="PATTERN", help="The whole answer matches this pattern."),
    click.option("--choice", multiple=True, metavar="TEXT", help="The answer is one of these; give several."),
)  # fmt: skip


def constraint_options(command: F) -> F:
    """Adds the options to a command."""
    return reduce(lambda made, option: option(made), reversed(OPTIONS), command)


def read_constraint(given: Mapping[str, Any]) -> ConstraintOptions:
    """What was asked for, as an option of a request. A usage error for more than one, or for a bad file."""
    asked = {name: value for name, value in given.items() if value not in (None, ())}
    if len(asked) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in asked)
        raise click.UsageError(f"{names} are given; an answer follows one of them")
    return {name.removesuffix("_file"): read(value) for name, value in asked.items()}  # type: ignore[return-value]  # the options' names


def read(value: str | Path | tuple[str, ...]) -> str | list[str]:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return list(value)
    try:
        return value.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{value}: cannot be read: {error}") from error

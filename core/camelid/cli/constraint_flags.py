"""Options that constrain an answer: a grammar, a JSON schema, a regex or a list of choices."""

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
    click.option("--grammar", metavar="GBNF", help="Constrain the answer to a grammar in llama.cpp's GBNF."),
    click.option("--grammar-file", type=FILE, help="Read the grammar from a file."),
    click.option("-j", "--json-schema", metavar="SCHEMA",
                 help="Constrain the answer to JSON of this schema; {} allows any JSON."),
    click.option("-jf", "--json-schema-file", type=FILE, help="Read the schema from a file."),
    click.option("--regex", metavar="PATTERN", help="Constrain the whole answer to a regular expression."),
    click.option("--choice", multiple=True, metavar="TEXT",
                 help="Constrain the answer to one of these texts. Repeatable."),
)  # fmt: skip


def constraint_options(command: F) -> F:
    """Adds the constraint options to a command."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(OPTIONS), command)


def read_constraint(options: Mapping[str, Any]) -> ConstraintOptions:
    """The request option of a constraint. A usage error for several constraints or an unreadable file."""
    constraints = {name: value for name, value in options.items() if value not in (None, ())}
    if len(constraints) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in constraints)
        raise click.UsageError(f"{names} exclude one another; expected at most one constraint")
    return {name.removesuffix("_file"): read(value) for name, value in constraints.items()}  # type: ignore[return-value]  # the options' names


def read(value: str | Path | tuple[str, ...]) -> str | list[str]:
    """A constraint's value: text, a file's text, or a list of choices."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return list(value)
    try:
        return value.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{value}: cannot be read: {error}") from error

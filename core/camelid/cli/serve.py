"""`camelid serve`: one or more models behind HTTP. Its options are the rows of `camelid.server.settings`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import click

from camelid.cli.command import SETTINGS, CamelidCommand, say
from camelid.cli.llama_flags import VARIABLES, own_arguments
from camelid.errors import RequestError
from camelid.server.setting_kinds import Kind, Several, Switch
from camelid.server.settings import ROWS, Row
from camelid.server.sources import configure


class SettingType(click.ParamType[Any]):
    """A setting's kind as click's type."""

    name = "setting"

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as it was given, once it is checked; the kind converts it with the other sources'."""
        try:
            self._kind.read(value, param.opts[0] if param else "the value")
        except RequestError as error:
            raise click.UsageError(error.message, ctx) from error
        return value


def option(row: Row) -> click.Option:
    """The option of a setting; None where it is not given."""
    names, text = [*row.spellings, row.name], f"{row.help}{default_text(row.default)}"
    if isinstance(row.kind, Switch):
        return click.Option(names, is_flag=True, default=None, help=text)
    return click.Option(
        names, type=SettingType(row.kind), metavar=row.kind.metavar, default=None,
        multiple=isinstance(row.kind, Several), help=text,
    )  # fmt: skip


def default_text(default: object) -> str:
    """The help's sentence about a default that its text does not name."""
    if isinstance(default, float):
        default = f"{default:g}"
    shown = "on" if default is True else default
    return f" Default: {shown}." if shown else ""


class ServeCommand(CamelidCommand):
    """The command, which knows llama-server's flags too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the arguments; flags of llama-server without a setting here come first."""
        return super().parse_args(ctx, own_arguments(args, say))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options by section."""
        for section in dict.fromkeys(row.section for row in ROWS.values()):
            with formatter.section(section):
                formatter.write_dl(self._help(ctx, section))

    def _help(self, ctx: click.Context, section: str) -> list[tuple[str, str]]:
        of_section = {row.name for row in ROWS.values() if row.section == section}
        records = (each.get_help_record(ctx) for each in self.params if each.name in of_section)
        return [record for record in records if record]


def given(flags: dict[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """The flags that were given; MODEL arguments come before those of -m."""
    found = {name: value for name, value in flags.items() if value is not None and value != ()}
    models = (*words, *found.pop("models", ()))
    return {**found, "models": models} if models else found


@click.command(cls=ServeCommand, context_settings=SETTINGS)
@click.argument("words", nargs=-1, metavar="[MODEL]...")
def command(words: tuple[str, ...], **flags: Any) -> None:
    """Serve models until SIGTERM or Ctrl-C, by default cria on loopback.

    MODEL is a file, a hub id, or NAME=either. Every option is also an environment variable
    (CAMELID_SERVE_PORT for --port, or llama-server's LLAMA_ARG_PORT) and a key of the TOML file of --config.
    """
    configured = configure(given(flags, words), os.environ, VARIABLES)
    setup = import_module("camelid.server.setup")  # imported here: needs the extra `serve`
    setup.run(configured, say)


command.params += [option(row) for row in ROWS.values()]

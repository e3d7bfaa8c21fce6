"""The flags of `chat` and `bench` for a server, and the refusal of flags without a meaning there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from camelid.cli.http_client import Address, Client, ServerError

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("server", "api_key", "model_name")
FLAGS = (
    click.option("--server", metavar="URL", help="Address of a server with OpenAI's API, instead of MODEL."),
    click.option("--api-key", envvar="CAMELID_API_KEY", show_envvar=True, metavar="KEY",
                 help="Key of the server."),
    click.option("--model", "model_name", metavar="NAME",
                 help="The server's name of the model. Default: its first."),
)  # fmt: skip


def server_flags(function: F) -> F:
    """Adds --server, --api-key and --model."""
    return reduce(lambda wrapped, flag: flag(wrapped), reversed(FLAGS), function)


def check_flags(server: str | None, only_here: Iterable[str], only_there: Iterable[str]) -> None:
    """A usage error for a flag of the other kind: `only_here` need --server, `only_there` exclude it."""
    context = click.get_current_context()
    for name in only_there if server else only_here:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = shown_flag(context.command, name)
            raise click.UsageError(
                f"{flag} has no meaning with --server" if server else f"{flag} needs --server URL"
            )


def shown_flag(command: click.Command, name: str) -> str:
    """A parameter as its user wrote it."""
    found = next(each for each in command.params if each.name == name)
    return "the argument MODEL" if isinstance(found, click.Argument) else max(found.opts, key=len)


def open_client(server: str, key: str | None) -> Client:
    """A client of the server. A usage error for an address or key that cannot be one."""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise click.UsageError("--api-key has a space or a special letter, which no header can carry")
    try:
        return Client(Address.of(server, key))
    except ServerError as error:
        raise click.UsageError(error.message) from error


async def choose_model(client: Client, name: str | None) -> str:
    """The name, or the server's first model. Raises ServerError for a server without any."""
    if name:
        return name
    models: Any = (await client.get("/v1/models")).get("data")
    try:
        return str(models[0]["id"])
    except (IndexError, KeyError, TypeError):
        raise ServerError("the server offers no model; name one with --model", status=200) from None

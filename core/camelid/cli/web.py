"""`camelid web`: serves the web page, or writes it with a model to one HTML file."""

from __future__ import annotations

import asyncio
import webbrowser
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from camelid.cli.command import say, subcommand, writing_bar
from camelid.cli.hub_download import local_path
from camelid.formats.hub.ids import HUB
from camelid.loading.model_file import open_model


@subcommand
@click.argument("model", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
              help="Port to listen on; 0 picks a free one.")  # fmt: skip
@click.option(
    "--hub",
    default=HUB,
    show_default=True,
    envvar="HF_ENDPOINT",
    metavar="URL",
    help="Hub that pages look up hub ids at.",
)
@click.option(
    "--connect",
    multiple=True,
    metavar="URL",
    help="Another server that pages may fetch models from, such as the hub's own download host; "
    "repeat for several.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--export",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Instead of serving, write the page with MODEL (default: cria) to one HTML file that runs without "
    "a server. An existing file is replaced.",
)
def command(
    model: str | None,
    host: str,
    port: int,
    hub: str,
    connect: tuple[str, ...],
    opens: bool,
    target: Path | None,
    verbose: bool,  # noqa: ARG001 - `subcommand` reads it
) -> None:
    """Serve the web page until Ctrl-C, by default on loopback; or export it with MODEL to one file."""
    if target:
        check_serving_options()
        check_target(target)
        write_file(model or "cria", target)
        if opens:
            webbrowser.open(target.resolve().as_uri())
        return
    if model:
        raise click.UsageError(f"MODEL ({model}) belongs to --export; served pages open models themselves")

    def ready(address: str) -> None:
        click.echo(f"serving {address}  (Ctrl-C to stop)")
        if opens:
            webbrowser.open(address)

    server = import_module("camelid.server.static")  # imported here: needs the extra `web`
    server.serve(host=host, port=port, hub=hub, connect=connect, ready=ready)


def check_serving_options() -> None:
    """Raises a usage error for options of the command line that only serving uses."""
    context = click.get_current_context()
    source = context.get_parameter_source
    given = [
        f"--{name}"
        for name in ("host", "port", "hub", "connect")
        if source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: only for serving the page; --export serves nothing")


def check_target(target: Path) -> None:
    """Raises a usage error for a name that is not an HTML file's, such as that of a model."""
    if target.suffix.lower() not in {".html", ".htm"}:
        raise click.UsageError(
            f"--export {target} is no name of an HTML file; expected for example: --export chat.html {target}"
        )


def write_file(model: str, target: Path) -> None:
    """Exports the page with a model, with a progress bar; prints the file's size to stderr."""
    one_file: Any = import_module("camelid.server.one_file")
    site = import_module("camelid.server.site").find_site()
    found = asyncio.run(open_model(local_path(model)))
    with writing_bar() as progress:
        n_bytes = one_file.export(site, found, target, progress)
    say(f"wrote {target}, {n_bytes:,} bytes; open it in a browser, from disk or from any web server")

"""`camelid web`: serves the web page."""

from __future__ import annotations

import webbrowser
from importlib import import_module

import click

from camelid.cli.command import subcommand
from camelid.formats.hub.ids import HUB


@subcommand
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
def command(
    host: str,
    port: int,
    hub: str,
    connect: tuple[str, ...],
    opens: bool,
    verbose: bool,  # noqa: ARG001 - `subcommand` reads it
) -> None:
    """Serve the web page until Ctrl-C, by default on loopback."""

    def ready(address: str) -> None:
        click.echo(f"serving {address}  (Ctrl-C to stop)")
        if opens:
            webbrowser.open(address)

    server = import_module("camelid.server.static")  # imported here: needs the extra `web`
    server.serve(host=host, port=port, hub=hub, connect=connect, ready=ready)

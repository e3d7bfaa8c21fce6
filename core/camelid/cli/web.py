"""`camelid web`: serves the built page."""

from __future__ import annotations

import webbrowser
from importlib import import_module

import click

from camelid.cli.command import subcommand


@subcommand
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback unless told otherwise.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes any.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
def command(host: str, port: int, opens: bool, verbose: bool) -> None:  # noqa: ARG001 - `subcommand` reads it
    """Serve the built page on loopback until Ctrl-C."""

    def ready(address: str) -> None:
        click.echo(f"serving {address}  (Ctrl-C ends it)")
        if opens:
            webbrowser.open(address)

    server = import_module("camelid.server.static")  # needs the extra `web`
    server.serve(host=host, port=port, ready=ready)

"""`camelid pull`: downloads a model from a hub into the cache."""

from __future__ import annotations

import json

import click

from camelid.cli.command import say, subcommand
from camelid.cli.format import human
from camelid.cli.hub_download import fetch_with_bar
from camelid.cli.mmproj_flag import no_mmproj_option
from camelid.errors import RequestError
from camelid.formats.hub.fetch import Fetched
from camelid.formats.hub.ids import HubId, parse_hub_id


def checked_hub_id(_: click.Context, __: click.Parameter, value: str) -> HubId:
    """The parsed hub id; a usage error for any other text."""
    try:
        hub_id = parse_hub_id(value)
    except RequestError as error:
        raise click.BadParameter(error.message) from error
    if hub_id is None:
        raise click.BadParameter(f"{value!r} is not a hub id; expected owner/repo or owner/repo:Q4_K_M")
    return hub_id


@subcommand
@click.argument("hub_id", metavar="HUB_ID", callback=checked_hub_id)
@click.option("--offline", is_flag=True, help="Use the cache only.")
@no_mmproj_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(hub_id: HubId, offline: bool, mmproj_auto: bool, as_json: bool, verbose: bool) -> None:
    """Download a model from a hub and print its path. HUB_ID is owner/repo[@REVISION][:QUANT or :FILE].

    QUANT defaults to Q4_K_M if the repository has it; REVISION is a branch, tag or commit. An interrupted
    download resumes. HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE apply as in huggingface_hub.
    """
    fetched = fetch_with_bar(hub_id, offline=offline, with_mmproj=mmproj_auto)
    if as_json:
        click.echo(json.dumps(facts(fetched)))
        return
    click.echo(fetched.path)
    if verbose:
        say(f"commit {fetched.commit}: {', '.join(file.name for file in fetched.files)}")
    name = f"{fetched.path.name} with {fetched.mmproj.name}" if fetched.mmproj else fetched.path.name
    say(f"{human(fetched.n_bytes)} · {name} · run it with: camelid run {fetched.hub_id} -p TEXT")


def facts(fetched: Fetched) -> dict[str, object]:
    """The JSON object of --json."""
    return {
        "hub_id": str(fetched.hub_id),
        "path": str(fetched.path),
        "commit": fetched.commit,
        "bytes": fetched.n_bytes,
        "mmproj": str(fetched.mmproj) if fetched.mmproj else None,
        "files": [str(file) for file in fetched.files],
    }

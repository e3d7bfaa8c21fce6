"""`camelid pull`: a model from a hub into the cache."""

from __future__ import annotations

import json

import click

from camelid.cli.fetching import fetch_shown
from camelid.cli.show import human
from camelid.cli.verb import say, verb
from camelid.errors import RequestError
from camelid.formats.hub.cache import Fetched
from camelid.formats.hub.ids import HubId, check_revision, parse_hub_id


def checked_hub_id(_: click.Context, __: click.Parameter, value: str) -> HubId:
    """The parsed id; a usage error if it is none."""
    try:
        hub_id = parse_hub_id(value)
    except RequestError as error:
        raise click.BadParameter(error.message) from error
    if hub_id is None:
        raise click.BadParameter(f"{value!r} is no hub id such as owner/repo or owner/repo:Q4_K_M")
    return hub_id


def checked_revision(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The revision, if a repository can have it."""
    try:
        return check_revision(value)
    except RequestError as error:
        raise click.BadParameter(error.message) from error


@verb
@click.argument("hub_id", metavar="HUB_ID", callback=checked_hub_id)
@click.option("--revision", metavar="REV", callback=checked_revision, help="A branch, tag or commit.")
@click.option("--offline", is_flag=True, help="Only look into the cache.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(hub_id: HubId, revision: str | None, offline: bool, as_json: bool, verbose: bool) -> None:
    """Fetch a model from a hub: owner/repo[@REVISION][:QUANT or :FILE].

    QUANT left out means Q4_K_M where there is one. Prints the model's path. After an interruption the same
    command goes on from where it was. HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE count as they do for
    other tools.
    """
    if revision and hub_id.revision not in {None, revision}:
        raise click.UsageError(f"{hub_id} names a revision, and --revision {revision} is another one")
    fetched = fetch_shown(hub_id, revision=revision, offline=offline or None)
    if as_json:
        click.echo(json.dumps(facts(fetched)))
        return
    click.echo(fetched.path)
    if verbose:
        say(f"commit {fetched.commit}: {', '.join(file.name for file in fetched.files)}")
    say(f"{human(fetched.n_bytes)} · {fetched.path.name} · run it with: camelid run {fetched.hub_id} -p TEXT")


def facts(fetched: Fetched) -> dict[str, object]:
    """What was fetched, for programs."""
    return {
        "hub_id": str(fetched.hub_id),
        "path": str(fetched.path),
        "commit": fetched.commit,
        "bytes": fetched.n_bytes,
        "files": [str(file) for file in fetched.files],
    }

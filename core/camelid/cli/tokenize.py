"""`camelid tokenize`: encodes text as token ids."""

from __future__ import annotations

import json
import sys

import click

from camelid.api.load import load_tokenizer
from camelid.cli.command import subcommand
from camelid.cli.hub_download import local_path


@subcommand
@click.argument("words", nargs=-1, metavar="[MODEL] [TEXT]")
@click.option("--special", is_flag=True, help="Parse control tokens in the text.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of token ids.")
def command(words: tuple[str, ...], special: bool, as_json: bool, verbose: bool) -> None:
    """Encode text as token ids, printed on one line; -v prints each with its text.

    A single argument is TEXT; two are MODEL and TEXT. TEXT is read from stdin if it is - or missing.
    """
    if len(words) > 2:
        raise click.UsageError(f"{len(words)} arguments, expected MODEL and TEXT; quote a text with spaces")
    model = words[0] if len(words) == 2 else "cria"
    text = words[-1] if words else "-"
    tokenizer = load_tokenizer(local_path(model))
    ids = tokenizer.encode(sys.stdin.read() if text == "-" else text, special)
    if as_json:
        click.echo(json.dumps(ids))
    elif verbose:
        for token_id in ids:
            click.echo(
                f"{token_id:>8}  {tokenizer.token_bytes(token_id).decode('utf-8', 'backslashreplace')!r}"
            )
    else:
        click.echo(" ".join(map(str, ids)))

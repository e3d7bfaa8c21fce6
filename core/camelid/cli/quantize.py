"""`camelid quantize`: writes a model as a GGUF of smaller weights."""

from __future__ import annotations

import click

from camelid.cli.command import subcommand, writing_bar
from camelid.cli.convert import report
from camelid.cli.hub_download import local_path
from camelid.loading.convert import QUANTIZE_TYPES, convert


@subcommand
@click.argument("model", metavar="IN")
@click.argument("target", metavar="OUT")
@click.argument("to", metavar="TYPE", type=click.Choice(QUANTIZE_TYPES, case_sensitive=False))
@click.option("--pure", is_flag=True,
              help="Quantize every matrix to TYPE. Default: the output matrix is at least q8_0.")  # fmt: skip
def command(model: str, target: str, to: str, pure: bool, verbose: bool) -> None:
    """Quantize the model IN (a GGUF or a directory) to the GGUF file OUT.

    TYPE is q4_0, q4_1, q5_0, q5_1 or q8_0, in upper or lower case. Norms, biases and routers stay f32.
    """
    path = local_path(model)
    with writing_bar() as progress:
        written = convert(path, target, to=to.lower(), pure=pure, progress=progress)
    report(written, verbose)

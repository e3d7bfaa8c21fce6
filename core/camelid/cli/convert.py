"""`camelid convert`: writes a published model as GGUF."""

from __future__ import annotations

import click

from camelid.cli.command import say, subcommand, writing_bar
from camelid.cli.hub_download import local_path
from camelid.loading.convert import CONVERT_TYPES, Conversion, convert
from camelid.loading.convert_tower import convert_tower


@subcommand
@click.argument("model", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option(
    "--type", "to", type=click.Choice(CONVERT_TYPES, case_sensitive=False), metavar="TYPE",
    help=f"Type of the matrices: {', '.join(CONVERT_TYPES)}. Default: unchanged.",
)  # fmt: skip
@click.option("--mmproj", "is_tower", is_flag=True, help="Write the model's vision tower alone.")
def command(model: str, target: str, to: str | None, is_tower: bool, verbose: bool) -> None:
    """Convert the model IN, a Hugging Face directory (safetensors) or a GGUF, to the GGUF file OUT.

    For 4 and 5 bits see camelid quantize.
    """
    path = local_path(model)
    write = convert_tower if is_tower else convert
    with writing_bar() as progress:
        written = write(path, target, to=to or "", progress=progress)
    report(written, verbose)


def report(written: Conversion, verbose: bool) -> None:
    """Prints the file, its size and the notes to stderr; with -v also the tensors per type."""
    for note in written.notes:
        say(f"note: {note}")
    ratio = written.n_bytes / max(written.source_bytes, 1)
    say(f"wrote {written.path}, {written.n_bytes:,} bytes ({ratio:.0%} of the source)")
    if verbose:
        for name, n in written.types.items():
            click.echo(f"{name:<8}{n:>6} tensors")

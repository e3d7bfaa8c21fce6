"""`camelid quantize`: writes a model with smaller weights, as a GGUF or as a directory in MLX's format."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import click

from camelid.cli.command import subcommand, writing_bar
from camelid.cli.convert import report
from camelid.cli.hub_download import local_path
from camelid.errors import RequestError
from camelid.loading.convert import QUANTIZE_TYPES, convert
from camelid.loading.convert_mlx import MLX_TYPES, convert_mlx, groups_of

TYPES = {"gguf": QUANTIZE_TYPES, "mlx": tuple(MLX_TYPES)}


@subcommand
@click.argument("model", metavar="IN")
@click.argument("target", metavar="OUT")
@click.argument("to", metavar="TYPE", type=click.Choice([*QUANTIZE_TYPES, *MLX_TYPES], case_sensitive=False))
@click.option(
    "--format", "form", type=click.Choice(tuple(TYPES)), default="gguf", show_default=True,
    help="Write a GGUF file, or a directory that mlx-lm opens; IN is then a Hugging Face directory.",
)  # fmt: skip
@click.option(
    "--group-size", type=int, metavar="N",
    help="Values that share a scale, with --format mlx and q2 to q8: 32, 64 or 128. Default: 64.",
)  # fmt: skip
@click.option(
    "--pure", is_flag=True, help="Quantize every matrix to TYPE. Default: the output matrix has 8 bits."
)
def command(
    model: str, target: str, to: str, form: str, group_size: int | None, pure: bool, verbose: bool
) -> None:
    """Quantize the model IN (a GGUF or a directory) to OUT, a GGUF file or, with --format mlx, a directory.

    TYPE, in upper or lower case, is q4_0, q4_1, q5_0, q5_1 or q8_0; with --format mlx q2, q3, q4, q5, q6, q8,
    mxfp4, mxfp8 or nvfp4. Norms, biases and routers stay floats.
    """
    to = to.lower()
    _check(to, form, group_size)
    path = local_path(model)
    with writing_bar() as progress:
        if form == "gguf":
            written = convert(path, target, to=to, pure=pure, progress=progress)
        else:
            written = convert_mlx(path, target, to=to, group_size=group_size, pure=pure, progress=progress)
    report(written, verbose)


def _check(to: str, form: str, group_size: int | None) -> None:
    """Raises UsageError for a type of the other format, and for a group size that the type does not have."""
    if to not in TYPES[form]:
        other = "mlx" if form == "gguf" else "gguf"
        known = ", ".join(TYPES[form])
        raise click.UsageError(f"--format {form} has no {to}; choose one of {known}, or --format {other}")
    if form == "gguf" and group_size is not None:
        raise click.UsageError("--group-size is for --format mlx; the types of a GGUF have blocks of 32")
    if form == "mlx":
        with usage_error():
            groups_of(to, group_size)


@contextmanager
def usage_error() -> Generator[None]:
    """Turns a RequestError of the block into wrong usage: exit code 2."""
    try:
        yield
    except RequestError as error:
        raise click.UsageError(error.message) from error

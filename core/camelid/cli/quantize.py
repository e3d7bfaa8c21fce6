"""`camelid quantize`: writes a model with smaller weights, as a GGUF or as a directory in MLX's format."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from camelid.cli.command import subcommand, writing_bar
from camelid.cli.convert import report
from camelid.cli.hub_download import local_path
from camelid.errors import RequestError
from camelid.formats.imatrix import read_imatrix
from camelid.formats.quants import GGUF_TYPES, QUANTS
from camelid.loading.convert_mlx import MLX_TYPES, convert_mlx, groups_of
from camelid.loading.quantize.choice import Wishes
from camelid.loading.quantize.mixes import ALIASES, MIXES
from camelid.loading.quantize.run import QuantizeOptions, QuantizePlan, plan_quantization, quantize

TYPES = {"gguf": tuple(MIXES), "mlx": tuple(MLX_TYPES)}
ALL_TYPES = list(dict.fromkeys((*MIXES, *ALIASES, *MLX_TYPES)))
TENSOR_TYPES = sorted(GGUF_TYPES - {"q8_1", "q8_k", "i8", "i16", "i32", "i64", "f64"})
GGUF_ONLY = ("imatrix", "tensor_types", "output_type", "embedding_type", "leave_output", "keep_split",
             "allow_requantize", "dry_run", "threads")  # fmt: skip
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _list_types(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Prints the types of GGUF files with bits a weight, and ends the command."""
    if not wanted or context.resilient_parsing:
        return
    for name, mix in MIXES.items():
        row = QUANTS[mix.type]
        click.echo(
            f"{name.upper():<10} {8 * row.block_bytes / row.block:>7.4g} bits a weight, {row.name} and others"
        )
    context.exit()


def _type_option(*names: str, text: str) -> Any:
    choice = click.Choice(TENSOR_TYPES, case_sensitive=False)
    return click.option(*names, type=choice, metavar="TYPE", help=text)


@subcommand
@click.argument("model", metavar="IN")
@click.argument("target", metavar="OUT")
@click.argument("to", metavar="TYPE", type=click.Choice(ALL_TYPES, case_sensitive=False))
@click.option(
    "--imatrix",
    type=FILE,
    metavar="FILE",
    help="Importance matrix, of camelid imatrix or llama.cpp: errors of columns that matter weigh more.",
)
@click.option(
    "--tensor-type",
    "tensor_types",
    multiple=True,
    metavar="PATTERN=TYPE",
    help="Type of tensors whose name has PATTERN, a regular expression; repeatable, the first counts.",
)
@_type_option("--output-tensor-type", "output_type", text="Type of the matrix that makes logits.")
@_type_option("--token-embedding-type", "embedding_type", text="Type of the token embedding.")
@click.option("--pure", is_flag=True, help="Quantize every matrix to TYPE, without the mix.")
@click.option("--leave-output-tensor", "leave_output", is_flag=True, help="Keep output.weight as it is.")
@click.option("--keep-split", is_flag=True, help="Write as many files as IN has: OUT-00001-of-00003.gguf.")
@click.option("--allow-requantize", is_flag=True, help="Quantize a model that is quantized already.")
@click.option(
    "-t", "--threads", type=click.IntRange(1), metavar="N", help="Threads. Default: one per processor."
)
@click.option("--dry-run", is_flag=True, help="Print every tensor's type and the size; write nothing.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_types,
    help="Print the types of a GGUF with bits a weight.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(TYPES)),
    default="gguf",
    show_default=True,
    help="Write a GGUF file, or a directory that mlx-lm opens; IN is then a Hugging Face directory.",
)
@click.option(
    "--group-size", type=int, metavar="N",
    help="Values that share a scale, with --format mlx and q2 to q8: 32, 64 or 128. Default: 64.",
)  # fmt: skip
def command(
    model: str,
    target: str,
    to: str,
    form: str,
    group_size: int | None,
    pure: bool,
    verbose: bool,
    **gguf: Any,
) -> None:
    """Quantize the model IN (a GGUF or a directory) to OUT, a GGUF file or, with --format mlx, a directory.

    TYPE, in upper or lower case, is a mix of llama.cpp, such as q4_k_m (or q4_k), iq3_xs or mxfp4_moe (--list
    prints all); with --format mlx q2, q3, q4, q5, q6, q8, mxfp4, mxfp8 or nvfp4. Norms, biases and routers
    stay floats.
    """
    to = ALIASES.get(to.lower(), to.lower())
    _check(to, form, group_size, gguf)
    path = local_path(model)
    if form == "gguf":
        _quantize(path, target, _options(to, pure, gguf), verbose, dry_run=gguf["dry_run"])
        return
    with writing_bar() as progress:
        written = convert_mlx(path, target, to=to, group_size=group_size, pure=pure, progress=progress)
    report(written, verbose)


def _quantize(path: str, target: str, options: QuantizeOptions, verbose: bool, *, dry_run: bool) -> None:
    if dry_run:
        _show(plan_quantization(path, options))
        return
    with writing_bar() as progress:
        written = quantize(path, target, options, progress=progress)
    report(written, verbose)


def _show(plan: QuantizePlan) -> None:
    """Prints a line per tensor, and the size."""
    for name, weight in plan.source.weights.items():
        shape = "x".join(map(str, weight.shape))
        click.echo(f"{name:<40} {shape:>18} {weight.type:>8} -> {plan.types[name]}")
    bits = 8 * plan.n_bytes / max(plan.n_values, 1)
    click.echo(f"{plan.n_bytes:,} bytes of weights, {bits:.2f} bits a weight; nothing was written")


def _options(to: str, pure: bool, gguf: dict[str, Any]) -> QuantizeOptions:
    return QuantizeOptions(
        to=to,
        wishes=Wishes(
            pure=pure,
            output=(gguf["output_type"] or "").lower(),
            embedding=(gguf["embedding_type"] or "").lower(),
            keep_output=gguf["leave_output"],
            patterns=tuple(map(_pattern, gguf["tensor_types"])),
        ),
        imatrix=read_imatrix(gguf["imatrix"]) if gguf["imatrix"] else None,
        allow_requantize=gguf["allow_requantize"],
        keep_split=gguf["keep_split"],
        threads=gguf["threads"],
    )


def _pattern(text: str) -> tuple[str, str]:
    """PATTERN=TYPE as a pair. Raises UsageError for another form, an unknown type and a bad pattern."""
    pattern, sign, kind = text.rpartition("=")
    if not sign or not pattern or kind.lower() not in TENSOR_TYPES:
        known = ", ".join(TENSOR_TYPES)
        raise click.UsageError(f"--tensor-type {text}: expected PATTERN=TYPE with one of {known}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"--tensor-type {text}: not a regular expression: {error}") from error
    return pattern, kind.lower()


def _check(to: str, form: str, group_size: int | None, gguf: dict[str, Any]) -> None:
    """Raises UsageError for a type or option of the other format, and for a group size that a type lacks."""
    if to not in TYPES[form]:
        other = "mlx" if form == "gguf" else "gguf"
        known = ", ".join(TYPES[form])
        raise click.UsageError(f"--format {form} has no {to}; choose one of {known}, or --format {other}")
    if form == "gguf" and group_size is not None:
        raise click.UsageError(
            "--group-size is for --format mlx; the types of a GGUF have blocks of their own"
        )
    if form == "mlx":
        given = [name for name in GGUF_ONLY if gguf[name]]
        if given:
            raise click.UsageError(f"--{given[0].replace('_', '-')} is for GGUF files, not for --format mlx")
        with usage_error():
            groups_of(to, group_size)


@contextmanager
def usage_error() -> Generator[None]:
    """Turns a RequestError of the block into wrong usage: exit code 2."""
    try:
        yield
    except RequestError as error:
        raise click.UsageError(error.message) from error

"""`camelid adapter`: adapters shown, converted, exported, merged into a model, and composed of others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from camelid.cli.adapter_info import describe, print_table
from camelid.cli.command import SETTINGS, case_bar, say, subcommand, writing_bar
from camelid.cli.convert import report
from camelid.cli.hub_download import local_adapter, local_path
from camelid.errors import RequestError
from camelid.formats.imatrix import read_imatrix
from camelid.loading.adapters.combine import METHODS, PRUNING, RANKED, Recipe
from camelid.loading.adapters.compose import compose
from camelid.loading.adapters.convert import FORMATS, convert_adapter, format_of
from camelid.loading.adapters.merge import merge
from camelid.loading.quantize.mixes import ALIASES, MIXES
from camelid.loading.quantize.run import QuantizeOptions

F = TypeVar("F", bound=Callable[..., Any])
TYPES = list(dict.fromkeys((*MIXES, *ALIASES)))
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
MODEL_HELP = "The base model, a GGUF or a directory: it states names and the order of rows."


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Show, convert, export, merge or compose LoRA adapters.

    ADAPTER is a directory of PEFT or mlx-lm, a GGUF adapter, or a hub id of one.
    """


@subcommand
@click.argument("adapter")
@click.option("-m", "--model", metavar="MODEL", help="Also check the adapter against its base model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info_command(adapter: str, model: str | None, as_json: bool, verbose: bool) -> None:
    """Show an adapter: format, base, ranks, scale, targets, size, digest, invocation tokens.

    With --model, the digest is that of the terms of the model's weights, which is equal in all formats.
    """
    facts = describe(local_adapter(adapter), local_path(model) if model else None)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        print_table(facts, verbose)


def output_format(function: F) -> F:
    """Adds --format."""
    return click.option(
        "--format", "form", type=click.Choice(FORMATS),
        help="Format of OUT. Default: gguf if its name ends with .gguf, else peft.",
    )(function)  # fmt: skip


@subcommand
@click.argument("adapter")
@click.argument("target", metavar="OUT")
@click.option("-m", "--model", required=True, metavar="MODEL", help=MODEL_HELP)
@output_format
def convert_command(adapter: str, target: str, model: str, form: str | None, verbose: bool) -> None:  # noqa: ARG001
    """Convert ADAPTER to OUT, a PEFT directory or a GGUF adapter, for the same base model.

    GGUF files of some models have their rows in another order than published ones, so the base is needed.
    """
    convert_adapter(local_adapter(adapter), local_path(model), target, to=form or format_of(target))
    say(f"wrote {target}")


@subcommand
@click.argument("adapter")
@click.argument("target", metavar="OUT")
@click.option("-m", "--model", required=True, metavar="MODEL", help=MODEL_HELP)
@click.option("--peft", "form", flag_value="peft", help="A directory that PEFT opens.")
@click.option("--gguf", "form", flag_value="gguf", help="A file that llama.cpp opens.")
@click.option("--base", default="", metavar="NAME", help="Name of the base model in a PEFT directory.")
def export_command(
    adapter: str, target: str, model: str, form: str | None, base: str, verbose: bool  # noqa: ARG001
) -> None:  # fmt: skip
    """Write ADAPTER for another program: --peft DIR, or --gguf FILE."""
    if form is None:
        raise click.UsageError("give --peft or --gguf")
    convert_adapter(local_adapter(adapter), local_path(model), target, to=form, base=base)
    say(f"wrote {target}")


@subcommand
@click.argument("model", metavar="BASE")
@click.argument("adapters", nargs=-1, required=True, metavar="ADAPTER[:SCALE]...")
@click.argument("target", metavar="OUT")
@click.option(
    "--type", "to", type=click.Choice(TYPES, case_sensitive=False), metavar="TYPE",
    help="Type of OUT, as of camelid quantize. Default: each tensor keeps its type.",
)  # fmt: skip
@click.option("--imatrix", type=FILE, metavar="FILE", help="Importance matrix for the type.")
@click.option("--allow-requantize", is_flag=True, help="Change the weights of a quantized BASE.")
@click.option(
    "-t", "--threads", type=click.IntRange(1), metavar="N", help="Threads. Default: one per processor."
)
def merge_command(
    model: str, adapters: tuple[str, ...], target: str, to: str | None, imatrix: Path | None,
    allow_requantize: bool, threads: int | None, verbose: bool,
) -> None:  # fmt: skip
    """Add adapters to the weights of BASE, a GGUF or a directory, and write the GGUF file OUT.

    A sum is exact in a float type; a quantized BASE is quantized anew where an adapter changes it.
    """
    to = (to or "").lower()
    options = QuantizeOptions(
        to=ALIASES.get(to, to),
        imatrix=read_imatrix(imatrix) if imatrix else None,
        allow_requantize=allow_requantize,
        threads=threads,
    )
    with writing_bar() as progress:
        written = merge(local_path(model), local_adapters(adapters), target, options, progress=progress)
    report(written, verbose)


@subcommand
@click.argument("adapters", nargs=-1, required=True, metavar="ADAPTER[:WEIGHT]...")
@click.argument("target", metavar="OUT")
@click.option(
    "--method", type=click.Choice(list(METHODS)), default="svd", show_default=True,
    help="cat: the exact sum, whose rank is the sum of ranks. svd: the sum, cut to a rank. ties: large "
    "elements of the sign that wins. dare: random elements. slerp: the arc between two. linear: sums of A "
    "and of B, as PEFT's.",
)  # fmt: skip
@click.option("--rank", type=click.IntRange(1), help=f"Rank of the result, of {', '.join(RANKED)}.")
@click.option(
    "--density", type=float, help=f"Share of elements that {' and '.join(PRUNING)} keep. Default: 0.5."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the elements that dare drops.")
def compose_command(
    adapters: tuple[str, ...], target: str, method: str, rank: int | None, density: float | None, seed: int,
    verbose: bool,  # noqa: ARG001
) -> None:  # fmt: skip
    """Combine adapters of one base and one format into OUT, of that format (mlx-lm's become PEFT's).

    Weights default to 1, for slerp to equal shares.
    """
    default = 0.5 if method in PRUNING else 1.0
    recipe = Recipe(method=method, rank=rank or 0, density=default if density is None else density, seed=seed)
    try:
        with case_bar() as progress:
            largest = compose(local_adapters(adapters), target, recipe, progress=progress)
    except RequestError as error:
        raise click.UsageError(error.message) from error
    say(f"wrote {target}, ranks up to {largest}")


def scaled(text: str) -> tuple[str, float]:
    """ADAPTER or ADAPTER:SCALE as a pair; a path that exists is a whole name."""
    path, sign, number = text.rpartition(":")
    if not sign or Path(text).exists():
        return text, 1.0
    try:
        scale = float(number)
    except ValueError:
        return text, 1.0
    if not math.isfinite(scale):
        raise click.UsageError(f"{text}: the scale is {number}, but a finite number is expected")
    return path, scale


def local_adapters(given: Sequence[str]) -> list[tuple[str, float]]:
    """Local paths and scales of adapters; adapters of hub ids are downloaded unless cached."""
    return [(local_adapter(path), scale) for path, scale in map(scaled, given)]


for name, function in {
    "info": info_command,
    "convert": convert_command,
    "export": export_command,
    "merge": merge_command,
    "compose": compose_command,
}.items():
    command.add_command(function, name)

"""`camelid embed`: embeddings of texts, as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from camelid.api.llm import LLM
from camelid.api.load import load
from camelid.cli.command import (
    backend_options,
    loading_bar,
    names_backend,
    read_backend,
    say,
    subcommand,
)
from camelid.cli.hub_download import local_path

FILE = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)
SHOWN = 6  # floats of an embedding in the table
TEXT_CHARS = 40
MODEL = click.argument("model", metavar="MODEL")
LINES = click.option("-f", "--file", "text_file", type=FILE, help="Read one text a line; - reads stdin.")
TRUNCATE = click.option("--truncate", is_flag=True, help="Cut texts beyond the context; else an error.")
CONTEXT = click.option("-c", "--ctx-size", "context", type=click.IntRange(1),
                       help="Tokens of the longest text (default: the model's).")  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@subcommand
@MODEL
@click.argument("texts", nargs=-1)
@LINES
@click.option("--normalize/--no-normalize", default=True, show_default=True, help="Scale to length 1.")
@click.option("--dimensions", type=click.IntRange(1), help="Keep the first N floats of each embedding.")
@click.option("--prompt", help="Text before each text: a name of the model's prompts, or ends in a colon.")
@TRUNCATE
@CONTEXT
@backend_options
@AS_JSON
def command(
    model: str, texts: Sequence[str], text_file: Path | None, normalize: bool, dimensions: int | None,
    prompt: str | None, truncate: bool, context: int | None, as_json: bool, verbose: bool, **others: Any,
) -> None:  # fmt: skip
    """Print the embeddings of TEXTS, of a file's lines, or of stdin's lines."""
    given = read_texts(texts, text_file)
    with loaded(model, context, others, verbose=verbose) as llm:
        how: dict[str, Any] = {"normalize": normalize, "dimensions": dimensions, "prompt": prompt}
        found = llm.embed(given, truncate=truncate, **how)
    if as_json:
        click.echo(json.dumps({"model": model, **how, "embeddings": found}))
        return
    for text, values in zip(given, found, strict=True):
        floats = " ".join(f"{value:8.4f}" for value in values[:SHOWN])
        more = f" … {len(values)}" if len(values) > SHOWN else ""
        click.echo(f"{floats}{more}  {short(text)}")


def read_texts(texts: Sequence[str], file: Path | None) -> list[str]:
    """The texts of the arguments, else of a file's or stdin's lines. A usage error for both, and for none."""
    if texts and file:
        raise click.UsageError("texts are given and a file of texts; give one of them")
    if texts:
        return list(texts)
    if file is None and sys.stdin.isatty():
        raise click.UsageError("no text; give texts, -f FILE, or lines on stdin")
    is_stdin = file is None or str(file) == "-"
    try:
        text = sys.stdin.read() if is_stdin or file is None else file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the texts are not UTF-8: byte {error.start}") from error
    lines = text.splitlines()
    if not lines:
        raise click.UsageError("there is no line to embed")
    return lines


def loaded(model: str, context: int | None, others: dict[str, Any], *, verbose: bool) -> LLM:
    """The loaded model; its backend is named if asked."""
    words: dict[str, Any] = {**read_backend(others), "context": context}
    with loading_bar() as progress:
        llm = load(local_path(model), progress=progress, **words)
    if names_backend(words, verbose):
        say(llm.backend_note)
    return llm


def short(text: str) -> str:
    """A text on one line of the table."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARS else f"{line[: TEXT_CHARS - 1]}…"

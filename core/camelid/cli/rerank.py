"""`camelid rerank`: documents by their relevance to a query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from camelid.cli.command import backend_options, subcommand
from camelid.cli.embed import AS_JSON, CONTEXT, LINES, MODEL, TRUNCATE, loaded, read_texts, short


@subcommand
@MODEL
@click.argument("query")
@click.argument("documents", nargs=-1)
@LINES
@click.option("--top", type=click.IntRange(1), help="Print the N most relevant documents alone.")
@click.option("--raw", is_flag=True, help="Print the model's logits instead of 0 to 1.")
@TRUNCATE
@CONTEXT
@backend_options
@AS_JSON
def command(
    model: str, query: str, documents: Sequence[str], text_file: Path | None, top: int | None, raw: bool,
    truncate: bool, context: int | None, as_json: bool, verbose: bool, **others: Any,
) -> None:  # fmt: skip
    """Print DOCUMENTS, a file's lines, or stdin's lines by relevance to QUERY, the most relevant first."""
    given = read_texts(documents, text_file)
    with loaded(model, context, others, verbose=verbose) as llm:
        scores = llm.rerank(query, given, normalize=not raw, truncate=truncate)
    order = sorted(range(len(given)), key=lambda i: -scores[i])[:top]
    if as_json:
        results = [{"index": i, "score": scores[i], "document": given[i]} for i in order]
        click.echo(json.dumps({"model": model, "query": query, "results": results}))
        return
    for i in order:
        click.echo(f"{scores[i]:8.4f}  {i + 1:>5}  {short(given[i])}")

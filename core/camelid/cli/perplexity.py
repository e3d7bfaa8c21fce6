"""`camelid perplexity`: a model's perplexity on a text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from camelid.api.llm import LLM
from camelid.api.load import load
from camelid.api.perplexity import PerplexityEstimate, Window, chunk_windows, strided_windows, window_losses
from camelid.cli.command import (
    backend_options,
    loading_bar,
    model_argument,
    names_backend,
    read_backend,
    say,
    subcommand,
)
from camelid.cli.hub_download import local_path
from camelid.cli.kv_flag import kv_type_option
from camelid.cli.lora_flags import lora_options, read_lora, without_lora
from camelid.cli.perplexity_kl import Divergence, check_alike, lines, log_probabilities
from camelid.errors import BackendError
from camelid.text.tokenizers.tokenizer import Tokenizer

FILE = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)


@subcommand
@model_argument
@click.option("-f", "--file", "text_file", type=FILE, required=True, help="Text file; - reads stdin.")
@click.option("-c", "--ctx-size", "context", type=click.IntRange(4), default=512, show_default=True,
              help="Tokens per chunk; the second half of each is scored.")  # fmt: skip
@click.option("--stride", type=click.IntRange(1),
              help="Use overlapping windows N tokens apart; every token is scored once.")  # fmt: skip
@click.option("--chunks", type=click.IntRange(1), help="Stop after N chunks or windows.")
@click.option(
    "--kl",
    "base",
    metavar="BASE",
    help="Compare with the model BASE, without --lora: KL divergence, equal top tokens, ratio of "
    "perplexities.",
)
@backend_options
@kv_type_option
@lora_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str, text_file: Path, context: int, stride: int | None, chunks: int | None, base: str | None,
    kv_type: str, as_json: bool, verbose: bool, **others: Any,
) -> None:  # fmt: skip
    """Measure a model's perplexity on a text, exp(mean loss per token), with its standard error.

    The default chunks are llama.cpp's, so that figures are comparable.
    """
    text, words = read_text(text_file), read_backend(others)
    words |= {"context": context, "parallel": 1, "kv_type": kv_type, **read_lora(others)}
    with loading_bar() as progress:
        llm = load(local_path(model), progress=progress, **words)
    with llm:
        if names_backend(words, verbose):
            say(llm.backend_note)
        windows = list(cut(llm.tokenizer, text, context, stride))[:chunks]
        began = perf_counter()
        compared = compare(llm, base, text, windows, words) if base else None
        estimate = compared.model if compared else evaluate(llm, windows, say_each=verbose)
        seconds = perf_counter() - began
        facts = figures(llm, estimate, windows, seconds) | {
            "model": model, "file": str(text_file), "kv_type": kv_type, "context": context,
            "stride": stride,
        }  # fmt: skip
        divergence = compared.facts() if compared else {}
    if as_json:
        click.echo(json.dumps(facts | ({"base": base} if base else {}) | divergence))
        return
    n = len(windows)
    click.echo(f"perplexity {estimate.perplexity:.4f} ± {estimate.error:.4f}")
    for line in lines(divergence, estimate.n_tokens) if divergence else ():
        click.echo(line)
    click.echo(f"{estimate.n_tokens:,} tokens scored in {n} {'windows' if stride else 'chunks'} of {context}")


def read_text(path: Path) -> str:
    """The text of a file or stdin. A usage error if it is empty or not UTF-8."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    if not text:
        raise click.UsageError(f"{path}: the text is empty")
    return text


def cut(tokenizer: Tokenizer, text: str, context: int, stride: int | None) -> Iterator[Window]:
    """The windows of a text. BOS, if the tokenizer adds it, precedes the text and every chunk."""
    before = tokenizer.frame.before
    ids = [*before, *tokenizer.encode(text)]
    return strided_windows(ids, context, stride) if stride else chunk_windows(ids, context, before)


def evaluate(llm: LLM, windows: Sequence[Window], *, say_each: bool) -> PerplexityEstimate:
    """Scores the windows in order. Raises BackendError for a loss whose perplexity is not finite."""
    estimate = PerplexityEstimate()
    with scoring_bar(len(windows)) as shown:
        for number, window in enumerate(windows, 1):
            estimate = estimate.plus(window_losses(window, llm.logits(window.token_ids)))
            if not isfinite(estimate.perplexity):
                name = llm.capabilities.name
                raise BackendError(
                    f"backend {name!r}: the loss up to window {number} is {estimate.loss:g} nats a token, "
                    "expected a finite perplexity; compare with --backend reference",
                    backend=name,
                )
            shown(number, estimate.perplexity)
            if say_each:
                say(f"window {number} of {len(windows)}: {estimate.perplexity:.4f} so far")
    return estimate


def compare(llm: LLM, base: str, text: str, windows: Sequence[Window], words: dict[str, Any]) -> Divergence:
    """Scores the windows on both models, one window at a time. Raises RequestError for models of other
    tokens, BackendError for logits that are not finite."""
    divergence = Divergence()
    with load(local_path(base), **without_lora(words)) as other, scoring_bar(len(windows)) as shown:
        check_alike(llm, other, text)
        for number, window in enumerate(windows, 1):
            pair = [log_probabilities(each, window.token_ids) for each in (other, llm)]
            divergence.add(window, *pair)
            if not isfinite(divergence.model.perplexity + divergence.base.perplexity):
                name = llm.capabilities.name
                message = f"backend {name!r}: the loss up to window {number} is not finite; compare with "
                raise BackendError(message + "--backend reference", backend=name)
            shown(number, divergence.model.perplexity)
    return divergence


def figures(
    llm: LLM, estimate: PerplexityEstimate, windows: Sequence[Window], seconds: float
) -> dict[str, object]:
    """The measured fields of --json; `command` adds the options."""
    n_read = sum(len(window.token_ids) for window in windows)
    return {
        "perplexity": estimate.perplexity,
        "error": estimate.error,
        "loss": estimate.loss,
        "n_tokens": estimate.n_tokens,
        "n_windows": len(windows),
        "backend": llm.capabilities.name,
        "device": llm.capabilities.device,
        "model_bytes": llm.weight_bytes,
        "total_s": seconds,
        "tps": n_read / seconds,
    }


@contextmanager
def scoring_bar(n_windows: int) -> Generator[Callable[[int, float], object]]:
    """A progress bar of windows with the estimate and the remaining time; no bar in a pipe."""
    if not sys.stderr.isatty():
        yield lambda done, perplexity: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("perplexity", total=n_windows)
        yield lambda done, perplexity: bar.update(
            task, completed=done, description=f"perplexity {perplexity:.4f}"
        )

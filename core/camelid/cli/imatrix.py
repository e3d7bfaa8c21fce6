"""`camelid imatrix`: collects mean squared activations by column, for `camelid quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from camelid.api.llm import LLM
from camelid.api.perplexity import PerplexityEstimate, window_losses
from camelid.api.runner import Runner
from camelid.cli.command import backend_options, loading_bar, read_backend, say, subcommand
from camelid.cli.hub_download import local_path
from camelid.cli.perplexity import FILE, cut, read_text, scoring_bar
from camelid.formats.imatrix import write_imatrix
from camelid.loading.observe import ObservedModel, start_observed
from camelid.loading.options import LoadOptions

SAVE_EVERY = 16  # chunks


@subcommand
@click.argument("model")
@click.option("-f", "--file", "text_file", type=FILE, required=True, help="Text file; - reads stdin.")
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Importance matrix to write, in the GGUF form of llama.cpp.",
)
@click.option(
    "-c",
    "--ctx-size",
    "context",
    type=click.IntRange(4),
    default=512,
    show_default=True,
    help="Tokens per chunk.",
)
@click.option("--chunks", type=click.IntRange(1), help="Stop after N chunks.")
@click.option(
    "--process-output",
    "with_output",
    is_flag=True,
    help="Collect for the matrix that makes logits too; quantizers of llama.cpp do not use it.",
)
@backend_options
def command(
    model: str, text_file: Path, target: Path, context: int, chunks: int | None, with_output: bool,
    verbose: bool, **others: Any,
) -> None:  # fmt: skip
    """Run a text through MODEL, and write how large the inputs of its linear maps are, by column.

    camelid quantize --imatrix FILE then weights errors by it. The text should be like what the model is
    used for; some 100 chunks are enough. The model should not be quantized. It is
    written every 16 chunks.
    """
    text, words = read_text(text_file), read_backend(others)
    options = LoadOptions.of(**words, context=context, parallel=1, max_in_flight=1)
    runner = Runner()
    with loading_bar() as progress:
        started = start_observed(local_path(model), options, with_output=with_output, progress=progress)
        observed = runner.run(started)
    with LLM(observed.running, runner) as llm:
        if verbose:
            say(llm.backend_note)
        windows = list(cut(llm.tokenizer, text, context, None))[:chunks]
        estimate = PerplexityEstimate()
        with scoring_bar(len(windows)) as shown:
            for number, window in enumerate(windows, 1):
                estimate = estimate.plus(window_losses(window, llm.logits(window.token_ids)))
                shown(number, estimate.perplexity)
                if number % SAVE_EVERY == 0 or number == len(windows):
                    _write(target, observed, text_file, number, context)
    say(f"wrote {target}: {len(observed.observer.sums)} matrices, {len(windows)} chunks of {context} tokens, "
        f"perplexity {estimate.perplexity:.4f}")  # fmt: skip


def _write(target: Path, observed: ObservedModel, text_file: Path, chunks: int, context: int) -> None:
    write_imatrix(target, observed.sums(), datasets=[text_file.name], chunks=chunks, chunk_size=context)

"""`camelid bench`: prefill and decode, beside what this machine's memory allows, measured in the same run."""

from __future__ import annotations

import json
import os
from random import Random
from statistics import median

import click

from camelid.backends.bandwidth import read_gbps
from camelid.cli.fetching import local_model
from camelid.cli.verb import backend_options, loading_bar, model_argument, say, verb
from camelid.errors import RequestError
from camelid.llm import LLM, load
from camelid.metrics import predict_step
from camelid.sequence import Timings


@verb
@model_argument
@click.option("-p", "--n-prompt", type=click.IntRange(1), default=512, show_default=True,
              help="Prompt tokens, drawn with a fixed seed.")  # fmt: skip
@click.option("-n", "--n-gen", type=click.IntRange(2), default=128, show_default=True,
              help="Tokens generated, greedily and past any end token.")  # fmt: skip
@click.option("-r", "--repetitions", type=click.IntRange(1), default=5, show_default=True,
              help="Medians are over these; one more goes before to warm up.")  # fmt: skip
@backend_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    model: str, n_prompt: int, n_gen: int, repetitions: int, backend: str, adapter: str, as_json: bool,
    verbose: bool,
) -> None:  # fmt: skip
    """Measure prefill and decode against this machine's read bandwidth."""
    path = local_model(model)
    context = n_prompt + n_gen
    try:
        with loading_bar() as progress:
            llm = load(path, backend=backend, adapter=adapter, context=context, parallel=1, progress=progress)
    except RequestError as error:
        if error.facts.get("field") != "context":
            raise
        message = f"-p {n_prompt} and -n {n_gen} take {context} rows: {error.message}; give smaller ones"
        raise RequestError(message, **error.facts) from None
    with llm:
        if backend == "auto" or verbose:
            say(llm.backend_note)
        facts = measure(llm, model, n_prompt, n_gen, repetitions)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        click.echo(f"{name:<24}{value:.4g}" if isinstance(value, float) else f"{name:<24}{value}")


def measure(llm: LLM, model: str, n_prompt: int, n_gen: int, repetitions: int) -> dict[str, object]:
    """The prediction, then the numbers."""
    peak = read_gbps()
    per_token = predict_step(llm.plan("decode"), held=n_prompt + n_gen // 2).n_bytes
    runs = [timed(llm, n_prompt, n_gen) for _ in range(repetitions + 1)][1:]
    decode_tps = median(t.decode_tps for t in runs)
    return {
        "backend": llm.capabilities.name,
        "device": llm.capabilities.device,
        "model": model,
        "model_bytes": llm.weight_bytes,
        "threads": os.cpu_count() or 1,
        "n_prompt": n_prompt,
        "n_gen": n_gen,
        "repetitions": repetitions,
        "predicted_decode_tps": peak * 1e9 / per_token,
        "prefill_tps": median(t.prefill_tps for t in runs),
        "decode_tps": decode_tps,
        "ttft_s": median(t.ttft_s for t in runs),
        "bytes_per_token": per_token,
        "read_gbps": peak,
        "bandwidth_share": per_token * decode_tps / (peak * 1e9),
    }


def timed(llm: LLM, n_prompt: int, n_gen: int) -> Timings:
    """One run. The ids are the same each time; none of them is reused, since nothing is cached yet."""
    draw = Random(0)
    ids = [draw.randrange(llm.spec.vocab_size) for _ in range(n_prompt)]
    return llm.generate(ids, max_tokens=n_gen, temperature=0.0, ignore_eos=True).timings

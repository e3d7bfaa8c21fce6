"""`camelid run`: one prompt, answered token by token."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from camelid.api.llm import LLM, Completion
from camelid.api.load import load
from camelid.backends.common.bandwidth import read_gbps
from camelid.cli.command import (
    backend_options,
    loading_bar,
    model_argument,
    names_backend,
    read_backend,
    say,
    subcommand,
)
from camelid.cli.constraint_flags import constraint_options, read_constraint
from camelid.cli.engine_flags import engine_flags, read_engine
from camelid.cli.hub_download import local_model
from camelid.cli.kv_flag import kv_type_option
from camelid.cli.lora_flags import lora_options, read_lora, without_lora
from camelid.cli.mmproj_flag import mmproj_option
from camelid.cli.sampling_flags import read_sampling, sampling_options
from camelid.plan.cost import predict_step
from camelid.requests.options import Options, Prompt


@subcommand
@model_argument
@click.option("-p", "--prompt", help="Prompt; - reads stdin. Default: stdin, if it is a pipe.")
@click.option("--system", help="System message.")
@click.option("--image", "images", multiple=True, type=click.Path(exists=True, dir_okay=False),
              help="An image before the prompt; may be given several times.")  # fmt: skip
@mmproj_option
@click.option("--raw", is_flag=True, help="Skip the chat template; the prompt may contain control tokens.")
@click.option("-n", "--n-predict", type=click.IntRange(1),
              help="Maximum number of tokens. Default: the rest of the context.")  # fmt: skip
@click.option("-c", "--ctx-size", type=click.IntRange(1),
              help="Context length in tokens. Default: the model's, at most 4096.")  # fmt: skip
@sampling_options
@constraint_options
@engine_flags
@click.option(
    "-md",
    "--model-draft",
    "draft",
    metavar="MODEL",
    help="Draft tokens with a smaller model of the same vocabulary; the answer does not change.",
)
@backend_options
@kv_type_option
@lora_options
@click.option("--save-tape", type=click.Path(dir_okay=False, path_type=Path),
              help="Save the tape with its shaders, for host_python.py.")  # fmt: skip
def command(
    model: str,
    prompt: str | None,
    system: str | None,
    images: tuple[str, ...],
    mmproj: str | None,
    mmproj_auto: bool,
    raw: bool,
    n_predict: int | None,
    ctx_size: int | None,
    draft: str | None,
    kv_type: str,
    save_tape: Path | None,
    verbose: bool,
    **others: Any,
) -> None:
    """Answer one prompt, streamed to stdout.

    Applies the model's chat template unless --raw. Prints one line of statistics to stderr at the end.
    """
    check_pairs(system, raw, draft, others["lookup"])
    if raw and images:
        raise click.UsageError("--image needs the chat template, which --raw skips")
    words = read_backend(others)
    words |= {"context": ctx_size, "parallel": 1, "kv_type": kv_type, **read_lora(others)}
    sampling, engine = read_sampling(others), read_engine(others)
    guide = read_constraint(others)
    text = read_prompt(prompt)
    with ExitStack() as stack:
        tower = {"mmproj": mmproj, "mmproj_auto": mmproj_auto}
        llm = stack.enter_context(loaded(model, {**words, **tower, "record_tape": save_tape is not None}))
        if draft:
            no_tower = {"mmproj": None, "mmproj_auto": False}
            engine["speculate"] = stack.enter_context(loaded(draft, {**without_lora(words), **no_tower}))
        llm.on_recovery(say)
        if names_backend(words, verbose):
            say(llm.backend_note)
        options: Options = {"max_tokens": n_predict, "special": raw, **sampling, **guide, **engine}
        done = answer(llm, make_prompt(llm, text, system, raw, images), options)
        say(closing_line(llm, done, verbose))
        if save_tape:
            llm.save_tape(str(save_tape))


def check_pairs(system: str | None, raw: bool, draft: str | None, lookup: bool) -> None:
    """Raises a usage error for options that exclude one another."""
    if raw and system:
        raise click.UsageError("--system needs the chat template, which --raw skips")
    if draft and lookup:
        raise click.UsageError("--lookup and --model-draft exclude one another; expected at most one draft")


def loaded(model: str, words: dict[str, Any]) -> LLM:
    """Loads the model, with a progress bar."""
    path, options = local_model(model, words)
    with loading_bar() as progress:
        return load(path, progress=progress, **options)


def read_prompt(prompt: str | None) -> str:
    """The prompt from -p or stdin. A usage error for an empty one."""
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.read().removesuffix("\n")
    if not prompt:
        raise click.UsageError("no prompt; give one with -p TEXT or through a pipe")
    return prompt


def make_prompt(llm: LLM, text: str, system: str | None, raw: bool, images: Sequence[str] = ()) -> Prompt:
    """Messages for the chat template; the bare text with --raw or without a template."""
    if raw:
        return text
    if not llm.has_template:
        if system or images:
            flag = "--system" if system else "--image"
            raise click.UsageError(f"{flag} needs a chat template, which this model lacks")
        say("warning: this model has no chat template; the prompt is used as it is")
        return text
    first = [{"role": "system", "content": system}] if system else []
    parts = [{"type": "image", "image": path} for path in images]
    return [*first, {"role": "user", "content": [*parts, {"type": "text", "text": text}] if images else text}]


def answer(llm: LLM, prompt: Prompt, options: Options) -> Completion:
    """Streams the answer to stdout and returns the completion."""
    stream = llm.stream(prompt, **options)
    has_begun = False
    try:
        while True:
            click.echo(next(stream).text, nl=False)  # echo flushes
            has_begun = True
    except StopIteration as end:
        return end.value
    finally:
        stream.close()
        if has_begun:
            click.echo()


def closing_line(llm: LLM, done: Completion, verbose: bool) -> str:
    """The line of statistics: device, decode tokens/s, bandwidth and time to first token."""
    c, t, n = llm.capabilities, done.timings, done.usage.completion_tokens
    cost = predict_step(llm.plan("decode"), held=done.usage.prompt_tokens + n // 2)
    gbps = cost.n_bytes * t.decode_tps / 1e9
    parts = [f"{c.name} on {c.device}", f"{n} tokens ({done.finish_reason})", f"{t.decode_tps:.1f} tok/s"]
    if verbose:
        peak = read_gbps()
        parts += [f"{gbps:.2f} GB/s, {gbps / peak:.1%} of this machine's {peak:.1f}", f"seed {done.seed}"]
    else:
        parts += [f"{gbps:.2f} GB/s"]
    return " · ".join([*parts, f"first token after {t.ttft_s:.3f} s"])

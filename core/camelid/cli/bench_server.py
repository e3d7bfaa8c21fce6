"""`camelid bench --server`: the load of many streams, or of arrivals at a rate, on any OpenAI server."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, TypeVar

import click

from camelid.cli.bench_cases import Counts
from camelid.cli.bench_report import Report
from camelid.cli.bench_server_load import Generator, Prompts, Shape, measure_shape, poisson, request_body
from camelid.cli.bench_server_report import Case, Result
from camelid.cli.command import Failure
from camelid.cli.http_client import Client, Json
from camelid.cli.server_flags import choose_model, open_client
from camelid.version import __version__

F = TypeVar("F", bound=Callable[..., Any])
PrintLine = Callable[[str], object]
# Flags of `camelid bench` that concern a model loaded here.
NOT_THERE = (
    "model", "depths", "batches", "repetitions", "kv_type", "compare", "backend", "adapter", "threads",
    "gpu_layers", "tensor_parallel", "pipeline_parallel", "collective", "activations",
)  # fmt: skip
CLOSED, OPEN = ("streams", "n_requests"), ("rate", "duration_s")
LOAD_FLAGS = (*CLOSED, *OPEN, "n_shared", "stops_at_eos", "has_logprobs", "nonce")
REQUESTS_PER_STREAM = 8  # by default
FLAGS = (
    click.option("--streams", type=Counts(1), default="8", show_default=True,
                 help="With --server: requests under way at once, each stream's next after its last. "
                 "Accepts a list: 1,8,32."),
    click.option("--requests", "n_requests", type=click.IntRange(1), metavar="M",
                 help=f"Requests of all streams together. Default: {REQUESTS_PER_STREAM} per stream."),
    click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="R",
                 help="Instead of --streams: R requests/s, at random times (Poisson), whether or not earlier "
                 "ones have ended."),
    click.option("--duration", "duration_s", type=click.FloatRange(0, min_open=True), default=30.0,
                 show_default=True, metavar="S", help="Seconds of arrivals with --rate."),
    click.option("--shared-prefix", "n_shared", type=click.IntRange(0), default=0, show_default=True,
                 metavar="N", help="Tokens that all prompts begin with. By default no two begin alike, so "
                 "that no prefix cache helps."),
    click.option("--stop-at-eos", "stops_at_eos", is_flag=True,
                 help="Let answers end early: for servers that do not know ignore_eos."),
    click.option("--logprobs", "has_logprobs", is_flag=True,
                 help="Ask for log-probabilities, so that each token is an event, also one without text."),
    click.option("--load-seed", "nonce", metavar="TEXT",
                 help="Seed of prompts and arrivals. Default: random; a repeated seed meets warm caches."),
)  # fmt: skip


def load_flags(function: F) -> F:
    """Adds the flags of the load to a command."""
    return reduce(lambda wrapped, flag: flag(wrapped), reversed(FLAGS), function)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options of a run."""

    cases: tuple[Case, ...]
    n_shared: int
    more: Json  # further fields of requests
    nonce: str


def read_load(words: dict[str, Any], n_prompt: tuple[int, ...], n_answer: tuple[int, ...]) -> LoadOptions:
    """Pops the load's flags. Raises UsageError for closed and open loop together, or for 0 tokens."""
    check_loop()
    if not all((*n_prompt, *n_answer)):
        raise click.UsageError("with --server, -p and -n must be above 0")
    rate, seconds = words.pop("rate"), words.pop("duration_s")
    streams, most = words.pop("streams"), words.pop("n_requests")
    pairs = list(product(n_prompt, n_answer))
    closed = [Case(p, n, s, most or REQUESTS_PER_STREAM * s) for p, n in pairs for s in streams]
    open_ = [Case(p, n, rate=rate, duration_s=seconds) for p, n in pairs]
    return LoadOptions(
        cases=tuple(open_ if rate else closed),
        n_shared=words.pop("n_shared"),
        more=more_fields(ignores_eos=not words.pop("stops_at_eos"), has_logprobs=words.pop("has_logprobs")),
        nonce=words.pop("nonce") or secrets.token_hex(8),
    )


def more_fields(*, ignores_eos: bool, has_logprobs: bool) -> Json:
    """Fields of requests beyond prompt and length."""
    return {**({"ignore_eos": True} if ignores_eos else {}), **({"logprobs": True} if has_logprobs else {})}


def check_loop() -> None:
    """Raises UsageError for flags of both loops, or for --duration without --rate."""
    context = click.get_current_context()
    given = {name for name in (*CLOSED, *OPEN) if _is_given(context, name)}
    if "duration_s" in given and "rate" not in given:
        raise click.UsageError("--duration needs --rate R")
    if "rate" in given and given & {*CLOSED}:
        raise click.UsageError("--rate is an open loop: it excludes --streams and --requests")


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def bench_server(
    server: str, key: str | None, model: str | None, load: LoadOptions, *, as_json: bool
) -> None:
    """Measures every case and prints it. Fails if no request of a case was answered."""
    client = open_client(server, key)
    facts, results = asyncio.run(measure(client, server, model, load, _silent if as_json else click.echo))
    if as_json:
        click.echo(json.dumps(facts))
    lost = [str(result.case) for result in results if not result.answered]
    if lost:
        raise Failure(f"no request was answered: {'; '.join(lost)}")


def _silent(line: str) -> None: ...


async def measure(
    client: Client, server: str, model: str | None, load: LoadOptions, print_line: PrintLine
) -> tuple[Report, list[Result]]:
    """Asks for the model and the length of words, then measures the cases one after another."""
    try:
        name = await choose_model(client, model)
        shape = await measure_shape(client, name)
        print_line(f"{server}: {name}, greedy, {'past' if 'ignore_eos' in load.more else 'up to'} end tokens")
        results = list[Result]()
        for case in load.cases:
            results.append(await measure_case(client, name, shape, case, load))
            for line in results[-1].lines():
                print_line(line)
    finally:
        await client.aclose()
    facts: Report = {"server": server, "model": name, "seed": load.nonce, "version": __version__}
    return {**facts, "rows": [result.facts() for result in results]}, results


async def measure_case(client: Client, model: str, shape: Shape, case: Case, load: LoadOptions) -> Result:
    """One case. Raises UsageError for prompts that the chat template alone exceeds."""
    n_words = shape.words(case.n_prompt)
    if not n_words:
        raise click.UsageError(
            f"-p {case.n_prompt}: the chat template alone has {shape.template_tokens:.0f} tokens; "
            "expected more"
        )
    prompts = Prompts(f"{load.nonce} {case}", n_words, shape.prefix_words(load.n_shared))

    def body(i: int) -> Json:
        return {**request_body(model, prompts.text(i), case.n_answer), **load.more}

    generator = Generator(client, body)
    begun, cpu = time.perf_counter(), time.process_time()
    if case.rate:
        samples = await generator.open_loop(poisson(case.rate, case.duration_s, prompts.nonce))
    else:
        samples = await generator.closed_loop(case.n_streams, case.n_requests)
    cpu_s = time.process_time() - cpu
    return Result(case, samples, max(sample.end for sample in samples) - begun, cpu_s)

"""`camelid bench`: prefill and decode speed against this machine's measured limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from camelid.backends.base import Capabilities
from camelid.backends.common.processors import allowed_processors, cpu_quota
from camelid.cli.bench_cases import Case, Counts, all_cases
from camelid.cli.bench_compare import Stored, read_stored
from camelid.cli.bench_predict import Yardstick, predict
from camelid.cli.bench_report import Report, Row, prediction_line, result_lines, summary
from camelid.cli.bench_rivals import RIVALS, Rival, RivalOptions
from camelid.cli.bench_runs import Bench, Run, open_bench
from camelid.cli.bench_server import LOAD_FLAGS, NOT_THERE, bench_server, load_flags, read_load
from camelid.cli.command import (
    Failure,
    backend_options,
    loading_bar,
    model_argument,
    read_backend,
    subcommand,
)
from camelid.cli.format import human
from camelid.cli.hub_download import local_path
from camelid.cli.kv_flag import kv_type_option
from camelid.cli.lora_flags import lora_options, read_lora
from camelid.cli.server_flags import NAMES, check_flags, server_flags
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.loading.options import LoadOptions
from camelid.version import __version__

PrintLine = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options of a bench run."""

    model: str
    path: str
    cases: Sequence[Case]
    repetitions: int
    options: LoadOptions
    rival: str  # of RIVALS, or ""
    stored: Stored | None

    @property
    def threads(self) -> int:
        """Threads of the processor's backend."""
        return self.options.threads or n_threads()


@subcommand
@model_argument
@click.option("-p", "--n-prompt", type=Counts(1, or_none=True), default="512", show_default=True,
              help="Prompt tokens, random with a fixed seed; 0 skips prefill.")  # fmt: skip
@click.option("-n", "--n-gen", type=Counts(2, or_none=True), default="128", show_default=True,
              help="Generated tokens, greedy, past end tokens; 0 skips decode.")  # fmt: skip
@click.option("-d", "--depth", "depths", type=Counts(0), default="0", show_default=True,
              help="Tokens in the KV cache before the timed ones.")  # fmt: skip
@click.option("-b", "--batch", "batches", type=Counts(1), default="1", show_default=True,
              help="Parallel sequences. -p, -n, -d and -b accept lists: -b 1,8.")  # fmt: skip
@click.option("-r", "--repetitions", type=click.IntRange(1), default=5, show_default=True,
              help="Timed runs per case, after one warmup run.")  # fmt: skip
@backend_options
@kv_type_option
@lora_options
@click.option("--compare", default="", metavar="RIVAL",
              help=f"{' or '.join(RIVALS)}: alternate runs on one model. FILE.json: a stored --json result; "
              "fail if a case is more than 10 % slower.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@server_flags
@load_flags
def command(
    model: str, n_prompt: tuple[int, ...], n_gen: tuple[int, ...], depths: tuple[int, ...],
    batches: tuple[int, ...], repetitions: int, kv_type: str, compare: str, as_json: bool, server: str | None,
    api_key: str | None, model_name: str | None, **others: Any,
) -> None:  # fmt: skip
    """Measure prefill and decode speed against this machine's limits, or a server under load.

    Each case starts with a prediction, from its bytes and the read bandwidth; for prefill also from its
    FLOPs and the speed of a matrix product. Both limits are measured just before.

    With --server, any server with OpenAI's API is measured from the client's side: times to the first token
    and between tokens, tokens and requests a second, errors.
    """
    check_flags(server, (*NAMES[1:], *LOAD_FLAGS), NOT_THERE)
    load = read_load(others, n_prompt, n_gen) if server else None
    if server and load:
        return bench_server(server, api_key, model_name, load, as_json=as_json)
    cases = all_cases(n_prompt, n_gen, depths, batches)
    stored = read_stored(Path(compare)) if compare not in ("", *RIVALS) else None
    if stored:
        stored.check_cases(cases)
    n_streams, words = max(batches), read_backend(others) | read_lora(others)
    if words["lora"] and compare in RIVALS:
        raise click.UsageError(f"--lora acts on this side alone, so --compare {compare} would not be fair")
    chunk = max(Limits().chunk, 2 * n_streams)
    context = max(case.rows(chunk) for case in cases)
    words |= {"chunk": chunk, "parallel": n_streams, "context": context, "kv_type": kv_type}
    run_options = BenchOptions(
        model=model,
        path=local_path(model),
        cases=cases,
        repetitions=repetitions,
        options=LoadOptions(**words),
        rival=compare if compare in RIVALS else "",
        stored=stored,
    )
    facts, rows = asyncio.run(measure(run_options, _silent if as_json else click.echo))
    if as_json:
        click.echo(json.dumps(facts))
    if stored and (slower := stored.slowdowns(rows)):
        raise Failure(f"slower than {compare}: {', '.join(slower)}, expected at least 90%")


def _silent(line: str) -> None: ...


async def measure(run_options: BenchOptions, print_line: PrintLine) -> tuple[Report, list[Row]]:
    """Loads the model and measures every case; `print_line` receives each prediction before its result."""
    async with AsyncExitStack() as stack:
        rival = stack.enter_context(open_rival(run_options)) if run_options.rival else None
        with loading_bar() as progress:
            opened = open_bench(run_options.path, run_options.options, perf_counter, progress)
            bench = await stack.enter_async_context(opened)
        facts = about(bench, run_options, rival)
        if run_options.stored:
            run_options.stored.check_facts(facts)
        print_line(heading(facts))
        if has_own_memory(bench.llm.capabilities):
            print_line("predictions use the processor's memory bandwidth; this device's memory may be faster")
        rows = [await measure_case(bench, case, run_options, rival, print_line) for case in run_options.cases]
    for line in run_options.stored.lines(rows) if run_options.stored else ():
        print_line(line)
    return {**facts, **summary(rows), "rows": [row.facts() for row in rows]}, rows


async def measure_case(
    bench: Bench, case: Case, run_options: BenchOptions, rival: Rival | None, print_line: PrintLine
) -> Row:
    """Measures the yardstick, predicts, then alternates runs of Camelid and the rival, the first a warmup."""
    plan = bench.llm.plan(MIXED if case.kind == "pp" else DECODE)
    yardstick = Yardstick.measure(bench.backend)
    prediction = predict(case, plan, yardstick, run_options.options.chunk or len(plan.rows))
    print_line(prediction_line(case, prediction, yardstick))
    ours: list[Run] = []
    theirs: list[Run] = []
    for repetition in range(run_options.repetitions + 1):
        ours.append(await bench.run(case, repetition))
        if rival:
            theirs.append(rival.run(case, repetition))
    row = Row(case=case, yardstick=yardstick, prediction=prediction, runs=ours[1:], rival=theirs[1:])
    for line in result_lines(row, run_options.rival):
        print_line(line)
    return row


def about(bench: Bench, run_options: BenchOptions, rival: Rival | None) -> Report:
    """Model, device and options of the result."""
    llm = bench.llm
    return {
        "backend": llm.capabilities.name,
        "device": llm.capabilities.device,
        "model": run_options.model,
        "model_bytes": llm.weight_bytes,
        "model_id": bench.model_id,
        "threads": run_options.threads,
        "gpu_layers": run_options.options.gpu_layers,
        "tensor_parallel": run_options.options.tensor_parallel,
        "pipeline_parallel": run_options.options.pipeline_parallel,
        "collective": run_options.options.collective or "peer",
        "kv_type": run_options.options.kv_type,
        "activations": llm.capabilities.activations,
        "repetitions": run_options.repetitions,
        "context": llm.context,
        "version": __version__,
        **({"rival": run_options.rival, "rival_build": rival.build} if rival else {}),
    }


def heading(facts: Report) -> str:
    """The first line of a report."""
    line = (
        f"{facts['backend']} on {facts['device']}: {facts['model']}, {human(int(str(facts['model_bytes'])))} "
        f"of weights, KV cache {facts['kv_type']}, {facts['threads']} threads"
    )
    return f"{line}\nbeside {facts['rival']}: {facts['rival_build']}" if "rival" in facts else line


def has_own_memory(capabilities: Capabilities) -> bool:
    """True for a hardware GPU, which may have faster memory; only GPUs report limits."""
    return bool(capabilities.limits) and not capabilities.is_software


def n_threads() -> int:
    """Default threads of the processor's backend and of the rival: one per available processor."""
    n, quota = len(allowed_processors()), cpu_quota()
    return n if quota is None else min(n, max(int(quota), 1))


def open_rival(run_options: BenchOptions) -> AbstractContextManager[Rival]:
    """The rival with the same model. Raises its errors of a model that it cannot load."""
    options = RivalOptions(run_options.path, run_options.options, run_options.threads)
    return RIVALS[run_options.rival](options)

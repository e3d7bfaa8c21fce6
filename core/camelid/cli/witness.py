"""`camelid witness`: checks, shows and replays a server's witness log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from camelid.api.llm import LLM
from camelid.api.load import aload_with
from camelid.cli.command import SETTINGS, Failure, loading_bar, say, subcommand, writing_bar
from camelid.cli.format import printable
from camelid.cli.hub_download import local_path
from camelid.errors import CamelidError
from camelid.loading.lora import scaled_files
from camelid.loading.options import LoadOptions
from camelid.model.adapter import MOST_RANK
from camelid.witness.chain import Facts
from camelid.witness.prompts import GivenPrompt, read_prompts
from camelid.witness.replay import Verdict, identity_mismatch, replay
from camelid.witness.verify import Summary, VerifiedRecord, check_sequence, read_records, verify

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Check, show or replay a witness log, which a server writes: one line per answered request."""


def selection(function: F) -> F:
    """Adds --record and --id."""
    by_id = click.option("--id", "request_id", metavar="ID", help="Only the records of this request id.")
    return click.option(
        "--record", "seq", type=click.IntRange(0), metavar="N", help="Only the record with this number."
    )(by_id(function))


@subcommand
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--head", default="", metavar="HASH", help="Fail unless a record has this hash, noted earlier.")
def verify_command(files: tuple[Path, ...], head: str, verbose: bool) -> None:  # noqa: ARG001
    """Check a log for changed or missing lines.

    A changed, deleted, inserted or moved line is named, and the exit code is 1. Several files are the parts
    of one rotated log, in any order. Each intact file is summed up on a line. A cut at the end of a line, or
    a log written anew as a whole, shows only against a hash noted elsewhere: see --head.
    """
    summaries = [verified(file, head) for file in files]
    for summary in summaries:
        click.echo(summary_line(summary))
    if len(summaries) > 1:
        check_sequence(summaries)
    if head and not any(summary.has_wanted for summary in summaries):
        raise Failure(f"no record has the hash {head}: the log was cut, or written anew")


def verified(file: Path, head: str = "") -> Summary:
    """The summary of an intact log, with a progress bar."""
    with reading_bar(file) as progress:
        return verify(file, wanted=head, progress=progress)


@contextmanager
def reading_bar(file: Path) -> Generator[Callable[[int], object] | None]:
    """A progress bar of the bytes of a file; None in a pipe."""
    with writing_bar() as bar:
        if bar is None:
            yield None
            return
        done, size = 0, file.stat().st_size

        def progress(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            bar(file.name, done, size)

        yield progress


def summary_line(summary: Summary) -> str:
    """An intact log in one line: counts, times, losses, the end, and the last hash."""
    found = [f"{summary.n_requests:,} requests in {summary.n_records:,} records"]
    found += [f"{summary.first_time} to {summary.last_time}"]
    found += [counted(summary.n_gaps, "gap", f" ({counted(summary.n_lost, 'request')} lost)")]
    found += [counted(summary.n_repairs, "torn end", " repaired")] if summary.n_repairs else []
    found += [counted(summary.n_unended, "earlier run", " ended by a crash")] if summary.n_unended else []
    found += [] if summary.is_closed else ["not closed: still written, ended by a crash, or cut"]
    found += [f"continues {summary.continues}"] if summary.continues else []
    return f"{summary.path}: intact: {', '.join(map(printable, found))}, last hash {summary.head}"


def counted(n: int, noun: str, after: str = "") -> str:
    """A count and its noun: no gaps, 1 gap (2 requests lost)."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}{after}" if n else f"no {noun}s"


@subcommand
@click.argument("file", type=FILE)
@selection
def show_command(file: Path, seq: int | None, request_id: str | None, verbose: bool) -> None:
    """Print the records of an intact log.

    One line per record; -v, --record or --id print its whole JSON.
    """
    whole = verbose or seq is not None or request_id is not None
    with reading_bar(file) as progress:
        records = [record for record in read_records(file, progress) if is_chosen(record, seq, request_id)]
    for record in records:
        click.echo(json.dumps(record.facts, indent=2) if whole else record_line(record))
    if not records:
        raise Failure(f"{file}: no record is chosen{chosen_words(seq, request_id)}")


def is_chosen(record: VerifiedRecord, seq: int | None, request_id: str | None) -> bool:
    """True if --record and --id select a record, or are absent."""
    return seq in (None, record.seq) and request_id in (None, record.facts.get("id"))


def chosen_words(seq: int | None, request_id: str | None) -> str:
    """The options that select records, for messages."""
    words = [f"--record {seq}" if seq is not None else "", f"--id {request_id}" if request_id else ""]
    return "".join(f" by {word}" for word in words if word)


def record_line(record: VerifiedRecord) -> str:
    """A record in one line."""
    facts, line = record.facts, f"{record.seq:>6}  {record.facts.get('time')}  {record.kind:<7}"
    if record.kind == "gap":
        line += f"  {facts['n_lost']} lost: {facts['reason']}"
    if record.kind == "request":
        usage = facts["usage"]
        line += (
            f"  {facts['id']}  {facts['key'] or '-'}  {facts['endpoint']}  {facts['model']}  "
            f"{usage['prompt_tokens']}+{usage['completion_tokens']} tokens  {facts['finish_reason']}"
        )
    return printable(line)


@subcommand
@click.argument("file", type=FILE)
@selection
@click.option("--model", metavar="MODEL", help="The model's file or hub id, if not at its recorded place.")
@click.option("--prompts", "prompts_file", type=FILE,
              help="Prompts for a log without content, as JSON lines with prompt_ids, text or messages.",
)  # fmt: skip
@click.option("--backend", metavar="NAME", help="Use another backend than the recorded one.")
@click.option("-t", "--threads", type=click.IntRange(1), metavar="N", help="Threads of the processor.")
@click.option("--lora", multiple=True, metavar="FILE", help="An adapter that answered; its hash is compared.")
def replay_command(
    file: Path, seq: int | None, request_id: str | None, model: str | None, prompts_file: Path | None,
    backend: str | None, threads: int | None, lora: tuple[str, ...], verbose: bool,
) -> None:  # fmt: skip
    """Compute recorded answers again and compare their tokens.

    The log is checked first. Answers of a model are not computed if its file has another hash; a build that
    differs is stated. An answer is repeated bit for bit where the backend promises B, whatever else ran
    beside it. The exit code is 1 if an answer differs, or if none could be computed.
    """
    records = request_records(file, seq, request_id)
    words: dict[str, Any] = {"backend": backend, "threads": threads}
    words |= {"lora": scaled_files(lora, applies=False), "adapter_rank": MOST_RANK}
    results = asyncio.run(replay_all(records, model, prompts_file, words, verbose=verbose))
    n_equal, n_differ = results.count(True), results.count(False)
    click.echo(f"{n_equal} equal, {n_differ} different, {results.count(None)} not computed")
    if n_differ or not n_equal:
        raise Failure(f"{file}: {n_differ} of {len(results)} answers differ" if n_differ else
                      f"{file}: no answer could be computed again")  # fmt: skip


Recorded = tuple[VerifiedRecord, Mapping[str, Any]]  # a request, and its model's facts


def request_records(file: Path, seq: int | None, request_id: str | None) -> list[Recorded]:
    """The chosen requests of an intact log, each with the facts of the model that answered it."""
    stated: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    chosen: list[Recorded] = []
    with reading_bar(file) as progress:
        for record in read_records(file, progress):
            models: Mapping[str, Any] = record.facts.get("models", {})
            stated |= {model_key(name, facts): facts for name, facts in models.items()}
            if record.kind == "request" and is_chosen(record, seq, request_id):
                chosen.append((record, model_of(record.facts, stated)))
    if not chosen:
        raise Failure(f"{file}: no request is chosen{chosen_words(seq, request_id)}")
    return chosen


def model_key(name: str, facts: Mapping[str, Any]) -> tuple[str, str, str]:
    """A model's name and the hashes of its file and build: the name alone may pass to another file."""
    return name, facts.get("model_sha256", ""), facts.get("build_sha256", "")


def model_of(facts: Facts, stated: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The facts of the model that answered a request, from its record or the log; empty if unknown."""
    return facts.get("identity") or stated.get(model_key(facts["model"], facts), {})


async def replay_all(
    records: list[Recorded],
    model: str | None,
    prompts: Path | None,
    words: Mapping[str, Any],
    *,
    verbose: bool,
) -> list[bool | None]:
    """Replays the records, one model after another."""
    results: list[bool | None] = []
    for group in by_model(records):
        try:
            llm = await load_recorded(group[0][1], model, words, verbose=verbose)
        except (CamelidError, Failure) as error:  # other models of the log may be here
            say(printable(error.message))
            verdict = Verdict(None, "cannot be computed: its model cannot be loaded")
            results += [shown(record, verdict) for record, _ in group]
            continue
        async with llm:
            given = read_prompts(prompts, llm) if prompts else {}
            results += [shown(record, await one_verdict(llm, record.facts, given)) for record, _ in group]
    return results


def by_model(records: list[Recorded]) -> Iterable[list[Recorded]]:
    """The records in groups of one model, build and options."""
    groups: dict[str, list[Recorded]] = {}
    for record, facts in records:
        groups.setdefault(json.dumps(facts, sort_keys=True), []).append((record, facts))
    return groups.values()


def shown(record: VerifiedRecord, verdict: Verdict) -> bool | None:
    """Prints the verdict on a record."""
    click.echo(printable(f"record {record.seq} ({record.facts['id']}): {verdict.detail}"))
    return verdict.is_equal


async def load_recorded(
    recorded: Mapping[str, Any], model: str | None, words: Mapping[str, Any], *, verbose: bool
) -> LLM:
    """The recorded model with the recorded load options, but for those in `words`.

    Raises Failure for a model that the log does not state and for another file, and as `camelid.load`.
    """
    if not recorded:
        raise Failure("the log does not state the model of some requests, so it cannot be loaded")
    options = {**recorded["options"], **{name: value for name, value in words.items() if value is not None}}
    if words.get("backend"):  # another backend has its own rounding, which the facts of its build state
        options.pop("activations", None)
    with loading_bar() as progress:
        llm = await aload_with(
            local_path(model or recorded["file"]), LoadOptions.of(**options), progress=progress
        )
    try:
        await check_identity(llm, recorded, verbose=verbose)
    except BaseException:
        await llm.aclose()
        raise
    return llm


async def check_identity(llm: LLM, recorded: Mapping[str, Any], *, verbose: bool) -> None:
    """Fails for another model's file; states a build that differs, and a backend without promise B."""
    identity = await llm.aidentity()
    if identity.model_sha256 != recorded["model_sha256"]:
        raise Failure(
            f"{identity.file} has SHA-256 {identity.model_sha256}, but the log recorded "
            f"{recorded['model_sha256']}; give the recorded model with --model"
        )
    if verbose:
        say(llm.backend_note)
    if different := identity_mismatch(recorded, identity):
        say(printable(f"another build than the recorded one: {different}; answers may differ"))
    for where, promise in (
        ("the recorded", recorded["build"]["promise"]),
        ("this", identity.build["promise"]),
    ):
        if "B" not in str(promise).split("+"):
            say(
                printable(
                    f"{where} backend does not promise B ({promise}): equal answers are likely, not certain"
                )
            )


async def one_verdict(llm: LLM, facts: Facts, given: Mapping[str, GivenPrompt]) -> Verdict:
    """A record's verdict; an error of its request counts as not computed."""
    try:
        return await replay(llm, facts, given)
    except CamelidError as error:
        return Verdict(None, f"cannot be computed: {error.message}")
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a log of other software
        return Verdict(None, f"cannot be computed: a value is missing or odd: {error!r}")


command.add_command(verify_command, "verify")
command.add_command(replay_command, "replay")
command.add_command(show_command, "show")

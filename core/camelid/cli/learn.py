"""`camelid learn`: what a model has learnt from feedback, and how to take it back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from camelid.api.learning import base_hash, open_space
from camelid.api.learnt.runs import learning_of
from camelid.api.load import aload
from camelid.api.thread import EngineThread
from camelid.cli.command import (
    SETTINGS,
    Failure,
    backend_options,
    loading_bar,
    read_backend,
    subcommand,
)
from camelid.cli.format import human, printable
from camelid.cli.hub_download import local_path
from camelid.learning.checks import read_checks
from camelid.learning.gate import Report
from camelid.learning.items import Item
from camelid.learning.loops import Bounds, Learning
from camelid.learning.retention import Check
from camelid.learning.space import Space
from camelid.learning.store.forget import forget
from camelid.learning.store.lease import Lease
from camelid.learning.store.store import Store
from camelid.learning.store.versions import BASE, current, last_refusal, undo, use, version_of, versions
from camelid.learning.training import Interrupted, Pace
from camelid.loading.model_file import open_model

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = 60  # characters of a text on a line
SHOWN_LOST = 5  # past requests and checks


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Show what a model has learnt from feedback, learn now, or take it back."""


def space_options(function: F) -> F:
    """Adds --model, --user and --folder."""
    folder = click.Path(file_okay=False, path_type=Path)
    function = click.option("--folder", type=folder, help="Folder of what was learnt.")(function)
    function = click.option("--user", default="local", show_default=True, help="The user's space.")(function)
    return click.option(
        "-m", "--model", default="cria", show_default=True, help="The model: a path or a hub id."
    )(function)


@contextmanager
def opened(model: str, user: str, folder: Path | None) -> Generator[Store]:
    """The store of a model and a user; no weights are loaded."""

    async def base() -> str:
        return await base_hash(await open_model(local_path(model)))

    store = Store.open(user, asyncio.run(base()), folder)
    try:
        yield store
    finally:
        store.close()


@subcommand
@space_options
def status(model: str, user: str, folder: Path | None, verbose: bool) -> None:  # noqa: ARG001
    """Show counts, bytes, the version in use, and the gate's latest figures."""
    with opened(model, user, folder) as store:
        items, rows, now = store.items(), versions(store), current(store)
        click.echo(f"file: {store.path}, {human(store.n_bytes())}")
        ups = sum(item.rating > 0 for item in items)
        right = sum(item.correction is not None for item in items)
        click.echo(f"feedback: {len(items)} items, {ups} up, {len(items) - ups} down, {right} corrected")
        click.echo(f"requests: {store.n_requests()}")
        click.echo(f"version in use: {now}, of {len(rows)}")
        report = next((row.report for row in rows if row.is_current), None) or last_refusal(store)
        click.echo(f"meter: {report['name']}: {report['why']}" if report else "meter: nothing was judged yet")


@subcommand
@space_options
@click.option("--items", "shows_items", is_flag=True, help="List the items of feedback instead of events.")
def log(model: str, user: str, folder: Path | None, shows_items: bool, verbose: bool) -> None:  # noqa: ARG001
    """List all events, after a check of their hash chain."""
    with opened(model, user, folder) as store:
        if shows_items:
            for item in store.items():
                click.echo(item_line(item))
            return
        for row in store.log():
            when = datetime.fromtimestamp(row.wall).isoformat(" ", "seconds")
            click.echo(f"{row.seq:>5}  {when}  {row.kind:<8}  {printable(row.subject)}")


def item_line(item: Item) -> str:
    """An item on one line: number, rating, question, right answer."""
    right = item.correction or {}
    fix = f" -> {right.get('content') or 'a tool call'}" if item.correction else ""
    text = f"{item.exchange.question}{fix}".replace("\n", " ")
    return f"{item.id:>5}  {item.rating:+d}  {printable(text)[:SHOWN]}"


@subcommand
@space_options
@click.argument("first")
@click.argument("second", required=False)
def diff(
    model: str,
    user: str,
    folder: Path | None,
    first: str,
    second: str | None,
    verbose: bool,  # noqa: ARG001
) -> None:
    """Show what FIRST learnt that SECOND, by default the version in use, did not, and the other way round."""
    with opened(model, user, folder) as store:
        names = (first, second or current(store))
        known = [data_of(store, name) for name in names]
        items = {item.id: item for item in store.items()}
        for sign, (ours, others) in (("-", known), ("+", known[::-1])):
            for id in sorted(ours.keys() - others.keys()):
                item = items.get(id)
                click.echo(f"{sign} {item_line(item) if item else f'{id:>5}  forgotten'}")
        for name in names:
            click.echo(f"{name}: {why(store, name)}")


def data_of(store: Store, name: str) -> Mapping[int, bytes]:
    """The items of a version, with their hashes."""
    return {} if name == BASE else dict(version_of(store, name).items)


def why(store: Store, name: str) -> str:
    """The gate's words on a version."""
    return "the model as it came" if name == BASE else str(version_of(store, name).report.get("why", ""))


@subcommand
@space_options
def undo_command(model: str, user: str, folder: Path | None, verbose: bool) -> None:  # noqa: ARG001
    """Put the version in use that was in use before."""
    with opened(model, user, folder) as store:
        click.echo(f"version in use: {undo(store)}")


@subcommand
@space_options
@click.argument("version")
def use_command(model: str, user: str, folder: Path | None, version: str, verbose: bool) -> None:  # noqa: ARG001
    """Put VERSION in use: a name of `log`, a hash, or base."""
    with opened(model, user, folder) as store:
        click.echo(f"version in use: {use(store, version)}")


@subcommand
@space_options
@click.argument("item", type=click.IntRange(1))
def forget_command(model: str, user: str, folder: Path | None, item: int, verbose: bool) -> None:  # noqa: ARG001
    """Forget ITEM, a number of `log --items`, and prove that its text is in no file of the store."""
    with opened(model, user, folder) as store:
        done = forget(store, item)
    click.echo(f"item {item} is forgotten")
    if done.stale:
        click.echo(f"stale, and their bytes deleted: {', '.join(done.stale)}")
    if done.also_in:
        click.echo(f"its text is also in the items {', '.join(map(str, done.also_in))}, which stay")
    else:
        click.echo(f"{human(done.n_bytes)} searched: its text is not there")


@dataclass(frozen=True, slots=True)
class Working:
    """A loaded model and the parts of a run."""

    space: Space
    learning: Learning


@contextmanager
def working(
    model: str,
    user: str,
    folder: Path | None,
    bounds: Bounds,
    words: dict[str, Any],
    checks: Sequence[Check] = (),
) -> Generator[Working]:
    """A model loaded for a run, with its space, while no other process trains it."""
    with EngineThread() as thread, loading_bar() as progress:
        llm = thread.run(aload(local_path(model), progress=progress, **words))
        try:
            space = open_space(user, thread.run(base_hash(llm.running.file)), folder)
            assert space.store, "a command has a store"
            try:
                with Lease(space.store.path) as has_lease:
                    if not has_lease:
                        raise Failure("another process trains this model now; try again later")
                    yield Working(space, learning_of(space, llm, thread.run, bounds, checks=checks))
            finally:
                space.close()
        finally:
            thread.run(llm.aclose())


@subcommand
@space_options
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
              help="Longest time of work.")  # fmt: skip
@click.option("--checks", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Questions with right answers, which count as past requests at the gate.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Compare settings by cross-validation on the feedback.")
@backend_options
def run(
    model: str,
    user: str,
    folder: Path | None,
    minutes: float,
    checks: Path | None,
    deep: bool,
    verbose: bool,  # noqa: ARG001
    **others: Any,
) -> None:
    """Learn from all feedback now: judge the forms of memory and, where training is possible, adapters."""
    bounds, asked = Bounds(seconds=60 * minutes), read_checks(checks) if checks else ()
    with working(model, user, folder, bounds, read_backend(others), asked) as found:
        pace = Pace(time.monotonic, time.sleep, seconds=bounds.seconds)
        try:
            done = found.learning.deep(pace) if deep else found.learning.run(pace)
        except Interrupted:
            raise Failure(
                f"{minutes:g} minutes are over before a candidate was judged; raise --minutes"
            ) from None
    for report in done.reports:
        click.echo(report_line(report))
    if done.form:
        click.echo(f"memory: {done.form}")
    if done.version:
        click.echo(f"version in use: {done.version}")


def report_line(report: Report) -> str:
    """A report on one line."""
    held = f"held-out {report.held_before} -> {report.held_after} of {report.n_items}"
    word = "accepted" if report.is_accepted else "refused"
    return f"{word:<8}  {report.name}: {held}; {report.why}{names_of_lost(report.lost)}"


def names_of_lost(lost: Sequence[str]) -> str:
    """The first of the lost past requests and checks, to stand behind a report's reason."""
    more = ", ..." if len(lost) > SHOWN_LOST else ""
    return f"; lost: {', '.join(map(printable, lost[:SHOWN_LOST]))}{more}" if lost else ""


@subcommand
@space_options
def gate(model: str, user: str, folder: Path | None, verbose: bool) -> None:  # noqa: ARG001
    """Show the gate's figures of every version, and of the last candidate that was refused."""
    with opened(model, user, folder) as store:
        for row in versions(store):
            mark = "*" if row.is_current else " "
            click.echo(
                f"{mark} {row.name:<4} {row.status:<9} {row.n_items} items, {row.report.get('why', '')}"
            )
        refused = last_refusal(store)
        if refused:
            lost = names_of_lost(refused.get("lost", ()))
            click.echo(f"last refused: {refused['name']}: {refused['why']}{lost}")


for _name, _command in (
    ("status", status), ("run", run), ("log", log), ("diff", diff), ("gate", gate), ("undo", undo_command),
    ("use", use_command), ("forget", forget_command),
):  # fmt: skip
    command.add_command(_command, _name)

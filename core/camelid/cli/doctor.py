"""`camelid doctor`: the machine, what each backend can do here, and whether its kernels are right."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Group

from camelid.backends.registry import BACKENDS
from camelid.cli.command import BACKEND_NAMES, Failure, case_bar, subcommand
from camelid.cli.doctor_examine import BackendReport, DoctorOptions, examine
from camelid.cli.doctor_machine import Machine, read_machine
from camelid.cli.doctor_report import backend_lines, machine_lines, show
from camelid.loading.start import TAKES_ADAPTER
from camelid.plan.ops import OPS
from camelid.version import __version__


@subcommand
@click.option("--backend", "backends", type=click.Choice(BACKEND_NAMES), multiple=True, metavar="NAME",
              help="This backend alone; several times for several. Default: all.")  # fmt: skip
@click.option("--adapter", default="", metavar="NAME",
              help="The device whose name contains this; of cpu, the variant of its kernels.")  # fmt: skip
@click.option("--op", default="", metavar="NAME", help="The cases of this op alone.")
@click.option("--full/--quick", "is_full", default=True,
              help="Every case, or the few that auto tries before it takes a device.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    backends: tuple[str, ...], adapter: str, op: str, is_full: bool, as_json: bool, verbose: bool
) -> None:
    """Show the machine and what each backend can do on it, and try every kernel against the reference.

    The gate runs each op with each type of weights on small and odd shapes. It compares by NMSE, the sum of
    squared errors over the sum of squares: at most 1e-10, or 1e-6 where values are rounded on the way. What
    it says is kept, and `--backend auto` obeys it. Exit code 1 if a kernel fails, or if a backend that was
    named cannot be opened.
    """
    names = backends or tuple(name for name in BACKENDS if name in BACKEND_NAMES)
    check_words(names, adapter, op)
    asked, machine = DoctorOptions(op=op, is_full=is_full, adapter=adapter), read_machine()
    found: list[BackendReport] = []
    if not as_json:
        show(Group(f"camelid {__version__}", machine_lines(machine)))
    for name in names:
        with case_bar() as bar:
            found.append(asyncio.run(examine(name, asked, bar or _silent)))
        if not as_json:
            show(backend_lines(found[-1], every=verbose))
    if as_json:
        click.echo(json.dumps(facts(machine, found)))
    if reason := complaint(found, backends):
        raise Failure(reason)


def check_words(names: tuple[str, ...], adapter: str, op: str) -> None:
    """A usage error for an op that is none, and for an adapter where there are none to choose from."""
    if op not in ("", *OPS):
        raise click.UsageError(f"unknown op {op!r}; known: {', '.join(OPS)}")
    if adapter and not {*names} & {*TAKES_ADAPTER}:
        raise click.UsageError(f"--adapter is for {', '.join(TAKES_ADAPTER)}, not for {', '.join(names)}")


def facts(machine: Machine, found: list[BackendReport]) -> dict[str, Any]:
    """The object of --json."""
    return {
        "version": __version__,
        "machine": asdict(machine),
        "backends": [each.facts() for each in found],
        "passed": not any(each.has_failed for each in found),
    }


def complaint(found: list[BackendReport], named: tuple[str, ...]) -> str:
    """Why the exit code is 1; "" if it is 0."""
    reasons = [f"{each.name} failed its gate" for each in found if each.has_failed]
    reasons += [f"{each.name} cannot be opened" for each in found if each.can is None and each.name in named]
    return "; ".join(reasons)


def _silent(what: str, done: int, of: int) -> None:
    """No progress is shown."""

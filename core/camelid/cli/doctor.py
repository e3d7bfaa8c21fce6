"""`camelid doctor`: the machine, the abilities of each backend, and a test of its kernels."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Group

from camelid.backends.registry import names_with, row_of
from camelid.cli.command import BACKEND_NAMES, Failure, activations_option, case_bar, subcommand
from camelid.cli.doctor_examine import BackendReport, DoctorOptions, examine
from camelid.cli.doctor_machine import Machine, read_machine
from camelid.cli.doctor_report import backend_lines, machine_lines, show
from camelid.plan.ops import OPS
from camelid.version import __version__


@subcommand
@click.option("--backend", "backends", type=click.Choice(BACKEND_NAMES), multiple=True, metavar="NAME",
              help="Examine this backend only. Repeatable. Default: all.")  # fmt: skip
@click.option("--adapter", default="", metavar="NAME",
              help="Select a device by part of its name; or a CPU kernel variant, such as avx2.")  # fmt: skip
@activations_option
@click.option("--op", default="", metavar="NAME", help="Test this op only.")
@click.option("--full/--quick", "is_full", default=True,
              help="Test every case, or only the few that --backend auto tests.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    backends: tuple[str, ...],
    adapter: str,
    activations: str | None,
    op: str,
    is_full: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Show the machine and its backends, and test every kernel against the reference backend.

    The gate runs each op with each weight type on small and odd shapes. The NMSE (sum of squared errors over
    sum of squares) must be at most 1e-10, or 1e-6 for ops that round intermediate values. The verdict is
    cached for `--backend auto`. Exit code 1 if a kernel fails or a backend of --backend cannot be opened.
    """
    names = backends or tuple(name for name in BACKEND_NAMES if not row_of(name).api)
    check_words(names, adapter, op)
    options = DoctorOptions(op=op, is_full=is_full, adapter=adapter, activations=activations)
    machine = read_machine()
    found: list[BackendReport] = []
    if not as_json:
        show(Group(f"camelid {__version__}", machine_lines(machine)))
    for name in names:
        with case_bar() as bar:
            found.append(asyncio.run(examine(name, options, bar or _silent)))
        if not as_json:
            show(backend_lines(found[-1], every=verbose))
    if as_json:
        click.echo(json.dumps(facts(machine, found)))
    if reason := complaint(found, backends):
        raise Failure(reason)


def check_words(names: tuple[str, ...], adapter: str, op: str) -> None:
    """Raises a usage error for an unknown op, and for --adapter with backends that have none."""
    if op not in ("", *OPS):
        raise click.UsageError(f"unknown op {op!r}; known: {', '.join(OPS)}")
    if adapter and not {*names} & {*names_with("adapter")}:
        raise click.UsageError(
            f"--adapter does not apply to {', '.join(names)}; expected {', '.join(names_with('adapter'))}"
        )


def facts(machine: Machine, found: list[BackendReport]) -> dict[str, Any]:
    """The JSON object of --json."""
    return {
        "version": __version__,
        "machine": asdict(machine),
        "backends": [each.facts() for each in found],
        "passed": not any(each.has_failed for each in found),
    }


def complaint(found: list[BackendReport], named: tuple[str, ...]) -> str:
    """The reason for exit code 1; "" for 0."""
    reasons = [f"{each.name} failed its gate" for each in found if each.has_failed]
    reasons += [f"{each.name} cannot be opened" for each in found if each.can is None and each.name in named]
    return "; ".join(reasons)


def _silent(what: str, done: int, of: int) -> None:
    """Shows no progress."""

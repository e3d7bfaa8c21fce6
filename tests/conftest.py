"""Tiers, and the rule that CI accepts no skip it does not know.

A test without a tier marker is `unit`. Under CI (or CAMELID_NO_SKIPS=1) the run fails when a test was
skipped for a reason that ALLOWED_SKIPS does not list, or when a tier that has tests passed none: a tier
that silently stops running is worse than a red one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

TIERS = ("unit", "conformance", "parity", "e2e", "faults")
# Beginnings of the reasons for which CI may skip, each with why that is no loss.
ALLOWED_SKIPS = (
    "shared material absent",  # vocabularies and templates of other models are not in the repository
    "no GPU",  # hosted CI machines have none; `make test` on a GPU machine runs these
    "no llama.cpp wheel",  # it takes six minutes to build; .ci/run takes it where it is cached
    "not on this platform",  # another system's adapter or file semantics
)
collected: Counter[str] = Counter()
passed: Counter[str] = Counter()
unknown_skips: list[str] = []


def strict() -> bool:
    return any(os.environ.get(name, "") not in {"", "0", "false"} for name in ("CI", "CAMELID_NO_SKIPS"))


def tier(item: pytest.Item) -> str:
    return next((name for name in TIERS if item.get_closest_marker(name)), "unit")


def pytest_itemcollected(item: pytest.Item) -> None:
    if tier(item) == "unit":
        item.add_marker("unit")


def pytest_collection_finish(session: pytest.Session) -> None:
    collected.update(tier(item) for item in session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed:
        passed[tier(item)] += 1
    if report.skipped and not hasattr(report, "wasxfail"):
        note_skip(item.nodeid, report)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        note_skip(report.nodeid, report)


def note_skip(nodeid: str, report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        unknown_skips.append(f"{nodeid}: skipped, {reason!r} is not in ALLOWED_SKIPS")


def complaints() -> Iterator[str]:
    yield from unknown_skips
    for name in TIERS:
        if collected[name] and not passed[name]:
            yield f"tier {name}: {collected[name]} tests, none passed"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if strict() and not exitstatus and any(complaints()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if strict():
        for line in complaints():
            terminalreporter.write_line(f"CI: {line}", red=True)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Material that is not in the repository: $CAMELID_SHARED, or `shared` beside the checkout."""
    place = Path(os.environ.get("CAMELID_SHARED") or Path(__file__).parents[2] / "shared")
    if not (place / "data").is_dir():
        pytest.skip(f"shared material absent: no {place / 'data'}; set CAMELID_SHARED")
    return place

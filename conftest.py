"""Tiers, and the rule that CI accepts no skip it does not know.

A test without a tier marker is `unit`. Under CI (or CAMELID_NO_SKIPS=1) the run fails when a test was
skipped for a reason that ALLOWED_SKIPS does not list, or when a tier that has tests passed none: a tier
that silently stops running is worse than a red one.

Tests marked `exhaustive` try the rest of what others try a part of. They are left out, and counted in a line
at the end, unless they are asked for: `--exhaustive` (`make exhaustive`) runs them and no others, and with
`--whole`, where a test is named (by its file and `::`, or with `-k`), or where those run that failed last,
nothing is left out.
"""

from __future__ import annotations

import gc
import os
import reprlib
import signal
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# A run in the background ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of programs are started, some from a fresh checkout: none shall compile again what one compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

TIERS = ("unit", "conformance", "parity", "e2e", "faults")
# Beginnings of the reasons for which CI may skip, each with why that is no loss.
ALLOWED_SKIPS = (
    "shared material absent",  # vocabularies and templates of other models are not in the repository
    "no GPU",  # hosted CI machines have none; `make test` on a GPU machine runs these
    "no torch",  # it takes hundreds of megabytes; .ci/setup goldens has it, for who trains cria
    "no llama.cpp wheel",  # it takes six minutes to build; .ci/run takes it where it is cached
    "not on this platform",  # another system's adapter or file semantics
)
begun: Counter[str] = Counter()
passed: Counter[str] = Counter()
left_out: Counter[str] = Counter()  # by process: each collects all tests


def strict() -> bool:
    return any(os.environ.get(name, "") not in {"", "0", "false"} for name in ("CI", "CAMELID_NO_SKIPS"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a third of the time tests wait for browsers and clocks."""
    return (os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run what an ordinary run leaves out, alone")
    parser.addoption("--whole", action="store_true", help="leave nothing out")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = bool(config.getoption("exhaustive"))
    if wanted or not leaves_nothing_out(config):
        rest = [item for item in items if bool(item.get_closest_marker("exhaustive")) != wanted]
        items[:] = [item for item in items if bool(item.get_closest_marker("exhaustive")) == wanted]
        config.hook.pytest_deselected(items=rest)
        note_left_out(config, 0 if wanted else len(rest))
    put_in_order(items)


def leaves_nothing_out(config: pytest.Config) -> bool:
    by_name = config.option.keyword or any("::" in arg for arg in config.args)
    return bool(by_name or config.getoption("whole") or config.getoption("lf", False))


def note_left_out(config: pytest.Config, number: int) -> None:
    """In a process of pytest-xdist, for the one that prints."""
    left_out["here"] = number
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output["left_out"] = number


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    number = getattr(node, "workeroutput", {}).get("left_out", 0)
    left_out["other processes"] = max(left_out["other processes"], number)


def put_in_order(items: list[pytest.Item]) -> None:
    """Files with slow tests first, then those with many, so that the processes end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    sizes = Counter(item.path for item in items)
    order = sorted(sizes, key=lambda path: (path not in slow, -sizes[path]))
    places = {path: place for place, path in enumerate(order)}
    items.sort(key=lambda item: places[item.path])


def pytest_collection() -> None:
    """Nothing that is collected is garbage: to look for some took a tenth of the time or more."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and the items stay to the end: to look for garbage among them, 400,000 objects each
    time, was a fifth of what tests of the text layer cost. What comes later is looked through a tenth as
    often: that was 2 % of all, and tests that bound the memory of a loop hold with it."""
    gc.enable()
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(10 * young, middle, 100)


def pytest_itemcollected(item: pytest.Item) -> None:
    if not any(item.get_closest_marker(name) for name in TIERS):
        item.add_marker("unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        refuse_skip(report)
    report.user_properties.append(("tier", next(n for n in TIERS if item.get_closest_marker(n))))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Under CI, a skip for a reason that is not known is a failure."""
    if not strict() or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"CI: skipped, {reason!r} is not in ALLOWED_SKIPS"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counted where reports arrive, so that it holds for tests that other processes run."""
    name = str(dict(report.user_properties).get("tier"))
    begun[name] += report.when == "setup"
    passed[name] += report.when == "call" and report.passed


def complaints() -> list[str]:
    return [
        f"tier {name}: {begun[name]} tests, none passed" for name in TIERS if begun[name] and not passed[name]
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if strict() and not exitstatus and complaints():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if number := max(left_out.values(), default=0):
        terminalreporter.write_line(f"exhaustive tests left out: {number} (`make exhaustive` runs them)")
    if strict():
        for line in complaints():
            terminalreporter.write_line(f"CI: {line}", red=True)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """What Camelid keeps goes to a folder of this run, not to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMELID_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def short_results() -> Generator[None]:
    """asyncio.run prints what it returns, twice, and drops it: signal.getsignal looks for a handler that
    holds its task among the values of an enum. Arrays would be a third of some tests' time; names will do."""

    def named(value: object, _: int) -> str:
        return f"<{type(value).__name__}>"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reprlib.aRepr, "repr_instance", named)
        yield


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return Path(__file__).parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """Material that is not in the repository: $CAMELID_SHARED, or `shared` beside the checkout."""
    place = Path(os.environ.get("CAMELID_SHARED") or Path(__file__).parents[1] / "shared")
    if not (place / "data").is_dir():
        pytest.skip(f"shared material absent: no {place / 'data'}; set CAMELID_SHARED")
    return place

"""Tiers, the skip rule of CI, and the selection of exhaustive tests.

A test without a tier marker is `unit`. Under CI (or CAMELID_NO_SKIPS=1) a run fails if a skip has a reason
outside ALLOWED_SKIPS, or if a tier with tests passes none of them.

An ordinary run deselects the tests marked `exhaustive` and prints their number. `--exhaustive`
(`make exhaustive`) selects only these. `--whole`, `::`, `-k` and `--last-failed` deselect nothing.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# A shell's background job ignores SIGINT, and a child process inherits that; some tests interrupt children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The backend mlx refuses an MLX that was imported without it, as another test may do.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

TIERS = ("unit", "conformance", "parity", "e2e", "faults")
# Prefixes of the skip reasons that CI accepts.
ALLOWED_SKIPS = (
    "shared material absent",  # vocabularies and templates of other models are not in the repository
    "no GPU",  # hosted CI machines lack one; `make test` on a GPU machine runs these tests
    "no CuPy",  # hundreds of megabytes; tests run every line of its device over functions that record calls
    "no torch",  # hundreds of megabytes, needed to train cria; `.ci/setup goldens` installs it
    "no mlx-lm",  # hundreds of megabytes with transformers; `.ci/setup goldens` installs it
    "no llama.cpp wheel",  # six minutes of build; .ci/run installs a cached wheel
    "not on this platform",  # another system's adapter or file semantics
)
begun: Counter[str] = Counter()
passed: Counter[str] = Counter()
left_out: Counter[str] = Counter()  # deselected exhaustive tests by process: each worker collects all tests


def strict() -> bool:
    return any(os.environ.get(name, "") not in {"", "0", "false"} for name in ("CI", "CAMELID_NO_SKIPS"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run exhaustive tests alone")
    parser.addoption("--whole", action="store_true", help="run ordinary and exhaustive tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = bool(config.getoption("exhaustive"))
    if wanted or not leaves_nothing_out(config):
        rest = [item for item in items if bool(item.get_closest_marker("exhaustive")) != wanted]
        items[:] = [item for item in items if bool(item.get_closest_marker("exhaustive")) == wanted]
        config.hook.pytest_deselected(items=rest)
        note_left_out(config, 0 if wanted else len(rest))


def leaves_nothing_out(config: pytest.Config) -> bool:
    by_name = config.option.keyword or any("::" in arg for arg in config.args)
    return bool(by_name or config.getoption("whole") or config.getoption("lf", False))


def note_left_out(config: pytest.Config, number: int) -> None:
    """Sends the number from a pytest-xdist worker to its controller, which prints it."""
    left_out["here"] = number
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output["left_out"] = number


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    number = getattr(node, "workeroutput", {}).get("left_out", 0)
    left_out["other processes"] = max(left_out["other processes"], number)


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
    """Fails a skip with an unknown reason under CI."""
    if not strict() or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"CI: skipped, {reason!r} is not in ALLOWED_SKIPS"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts the reports of all workers, in the controller."""
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
    """Camelid's cache of this run: a temporary folder instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMELID_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return Path(__file__).parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """Material outside the repository: $CAMELID_SHARED, or `shared` beside the checkout."""
    place = Path(os.environ.get("CAMELID_SHARED") or Path(__file__).parents[1] / "shared")
    if not (place / "data").is_dir():
        pytest.skip(f"shared material absent: no {place / 'data'}; set CAMELID_SHARED")
    return place

"""A stored result of `camelid bench --json` as the rival: equal conditions, and slowdowns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from camelid.cli.bench_cases import Case
from camelid.cli.bench_report import Row, rate

SLOWDOWN = 0.10  # more than this fails
# Facts that must be equal, and their names in a refusal.
SAME: Mapping[str, str] = {
    "model_id": "file",
    "threads": "number of threads",
    "kv_type": "type of keys and values",
    "gpu_layers": "number of layers on the GPU",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A result's facts, and its median tokens per second by case."""

    path: Path
    facts: Mapping[str, Any]
    tps: Mapping[Case, float]

    def check_facts(self, facts: Mapping[str, Any]) -> None:
        """Equal conditions; a ratio between others measures no code."""
        for name, called in SAME.items():
            if self.facts[name] != facts[name]:
                was, now = (_shown(name, each) for each in (self.facts, facts))
                raise click.UsageError(
                    f"{self.path} is of another {called}: {was}, not {now}; "
                    "compare results of the same file, threads and depth"
                )

    def check_cases(self, cases: Sequence[Case]) -> None:
        """Every case is in the result."""
        missing = next((case for case in cases if case not in self.tps), None)
        if missing:
            has = ", ".join(map(str, self.tps))
            raise click.UsageError(
                f"{self.path} has no {missing}; it has {has}. Give the same -p, -n, -d and -b"
            )

    def ratios(self, rows: Sequence[Row]) -> dict[Case, float]:
        """Each row's tokens per second over the result's."""
        return {row.case: row.spread.median / self.tps[row.case] for row in rows}

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """Each ratio as a line."""
        ratios = self.ratios(rows).items()
        return [
            f"{case}: {n:.3g} of {self.path.name}, which had {rate(self.tps[case])}" for case, n in ratios
        ]

    def slowdowns(self, rows: Sequence[Row]) -> list[str]:
        """The cases below the limit."""
        return [f"{case} runs at {n:.0%}" for case, n in self.ratios(rows).items() if n < 1 - SLOWDOWN]


def _shown(name: str, facts: Mapping[str, Any]) -> str:
    return f"{facts.get('model')}, {facts[name]}" if name == "model_id" else str(facts[name])


def read_stored(path: Path) -> Stored:
    """The result in a file; a usage error for any other file."""
    try:
        facts: Any = json.loads(path.read_text("utf-8"))
        rows = cast("list[dict[str, Any]]", facts["rows"])
        tps = {_case(row): float(row["tps"]) for row in rows}
        if missing := [name for name in SAME if name not in facts]:
            raise ValueError(f"no {missing[0]}")
        if not all(each > 0 for each in tps.values()):
            raise ValueError("a rate is not above 0")
    except OSError as error:
        raise click.UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise click.UsageError(f"{path} is not a result of camelid bench --json ({reason})") from error
    return Stored(path, facts, tps)


def _case(row: Mapping[str, Any]) -> Case:
    return Case(row["kind"], int(row["n"]), int(row["depth"]), int(row["batch"]))

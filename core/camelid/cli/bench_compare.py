"""Comparison with a stored result of `camelid bench --json`: equal conditions, ratios and slowdowns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from camelid.cli.bench_cases import Case
from camelid.cli.bench_report import Row, rate

SLOWDOWN = 0.10  # maximum loss of tokens/s
# Report that must be equal, and their names in errors.
SAME: Mapping[str, str] = {
    "model_id": "file",
    "threads": "number of threads",
    "kv_type": "KV cache type",
    "gpu_layers": "number of layers on the GPU",
    "tensor_parallel": "number of GPUs",
    "pipeline_parallel": "number of stages",
    "collective": "way to sum over GPUs",
    "activations": "activations",
}
# Of results that are older than these facts.
ABSENT = {"tensor_parallel": 1, "pipeline_parallel": 1, "collective": "peer"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored result: its facts, and median tokens per second by case."""

    path: Path
    facts: Mapping[str, Any]
    tps: Mapping[Case, float]

    def check_facts(self, facts: Mapping[str, Any]) -> None:
        """Raises a usage error for different conditions, whose ratio would not compare the code."""
        for name, called in SAME.items():
            if self.facts.get(name, ABSENT.get(name)) != facts[name]:
                was, now = (_shown(name, each) for each in (self.facts, facts))
                raise click.UsageError(
                    f"{self.path} has another {called}: {was}, expected {now}; "
                    "compare results of the same file, threads, activations and depth"
                )

    def check_cases(self, cases: Sequence[Case]) -> None:
        """Raises a usage error for a case that the result lacks."""
        missing = next((case for case in cases if case not in self.tps), None)
        if missing:
            has = ", ".join(map(str, self.tps))
            raise click.UsageError(
                f"{self.path} lacks {missing}; its cases: {has}. Give the same -p, -n, -d and -b"
            )

    def ratios(self, rows: Sequence[Row]) -> dict[Case, float]:
        """Tokens per second of each row over the stored ones, by case."""
        return {row.case: row.spread.median / self.tps[row.case] for row in rows}

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """One line per ratio."""
        ratios = self.ratios(rows).items()
        return [f"{case}: {n:.3g} times {self.path.name} ({rate(self.tps[case])})" for case, n in ratios]

    def slowdowns(self, rows: Sequence[Row]) -> list[str]:
        """The cases slower than the limit."""
        return [f"{case} at {n:.0%}" for case, n in self.ratios(rows).items() if n < 1 - SLOWDOWN]


def _shown(name: str, facts: Mapping[str, Any]) -> str:
    return f"{facts.get('model')}, {facts[name]}" if name == "model_id" else str(facts[name])


def read_stored(path: Path) -> Stored:
    """Reads a stored result. A usage error for any other file."""
    try:
        facts: Any = json.loads(path.read_text("utf-8"))
        rows = cast("list[dict[str, Any]]", facts["rows"])
        tps = {_case(row): float(row["tps"]) for row in rows}
        facts.setdefault("activations", "q8" if facts.get("backend") == "cpu" else "f32")  # of older versions
        if missing := [name for name in SAME if name not in facts]:
            raise ValueError(f"no {missing[0]}")
        if not all(each > 0 for each in tps.values()):
            raise ValueError("tps is not above 0")
    except OSError as error:
        raise click.UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise click.UsageError(f"{path} is not a result of camelid bench --json ({reason})") from error
    return Stored(path, facts, tps)


def _case(row: Mapping[str, Any]) -> Case:
    return Case(row["kind"], int(row["n"]), int(row["depth"]), int(row["batch"]))

"""An earlier result of `camelid bench --json` as the rival: what must be the same, and what became slower."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from camelid.cli.bench_cases import Case
from camelid.cli.bench_report import Row, rate

SLOWDOWN = 0.10  # more than this fails
# Facts that must be the same; what a complaint calls each, and which facts it shows.
SAME: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "model_id": ("file", ("model", "model_bytes", "model_id")),
    "threads": ("number of threads", ("threads",)),
    "kv_type": ("type of keys and values", ("kv_type",)),
    "gpu_layers": ("number of layers on the GPU", ("gpu_layers",)),
}
TOLD = ("model", "model_bytes")  # that are not compared: the same file may lie elsewhere


@dataclass(frozen=True, slots=True)
class Stored:
    """A result's facts, and its median tokens a second by case."""

    path: Path
    facts: Mapping[str, object]
    tps: Mapping[Case, float]

    def check_facts(self, facts: Mapping[str, object]) -> None:
        """Refuses a result of another file, say, since a ratio would say nothing of the code."""
        for name, (called, shown) in SAME.items():
            if self.facts[name] != facts[name]:
                was, now = (", ".join(str(each.get(word)) for word in shown) for each in (self.facts, facts))
                raise click.UsageError(
                    f"{self.path} is of another {called}: {was}, not {now}; "
                    "compare results of the same file, threads and depth"
                )

    def check_cases(self, cases: Sequence[Case]) -> None:
        """Refuses cases that the result does not have."""
        missing = next((case for case in cases if case not in self.tps), None)
        if missing:
            has = ", ".join(map(str, self.tps))
            raise click.UsageError(
                f"{self.path} has no {missing}; it has {has}. Give the same -p, -n, -d and -b"
            )

    def ratios(self, rows: Sequence[Row]) -> dict[Case, float]:
        """Each row's tokens a second over the result's."""
        return {row.case: row.spread.median / self.tps[row.case] for row in rows}

    def lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Each ratio as a line."""
        for case, ratio in self.ratios(rows).items():
            yield f"{case}: {ratio:.3g} of {self.path.name}, which had {rate(self.tps[case])}"

    def slowdowns(self, rows: Sequence[Row]) -> list[str]:
        """The rows that are slower by more than what is allowed."""
        return [
            f"{case} runs at {ratio:.0%}" for case, ratio in self.ratios(rows).items() if ratio < 1 - SLOWDOWN
        ]


def read_stored(path: Path) -> Stored:
    """The result in a file. A usage error if it is none."""
    try:
        facts: Any = json.loads(path.read_text("utf-8"))
        rows = cast("list[dict[str, Any]]", facts["rows"])
        tps = {_case(row): float(row["tps"]) for row in rows}
        named = {name: facts[name] for name in SAME} | {name: facts.get(name) for name in TOLD}
    except OSError as error:
        raise click.UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise click.UsageError(f"{path} is not a result of camelid bench --json ({reason})") from error
    if not all(rate > 0 for rate in tps.values()):
        raise click.UsageError(f"{path} is not a result of camelid bench --json (a rate is not above 0)")
    return Stored(path, named, tps)


def _case(row: Mapping[str, Any]) -> Case:
    return Case(row["kind"], int(row["n"]), int(row["depth"]), int(row["batch"]))

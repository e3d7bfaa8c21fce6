"""Fuzzes every reader of foreign bytes: `make fuzz`, or `python -m tests.fuzz --minutes 10 [--target NAME]`.

Prints cases, outcomes, and the worst time and memory of each target. Files behind findings are stored in
build/fuzz; the exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from tests.fuzz.run import Outcome, run_case
from tests.fuzz.targets import TARGETS, Target

KEPT = Path(__file__).parents[2] / "build" / "fuzz"
BATCH = 200  # cases of one target in a row


@dataclass
class Tally:
    """Outcomes of one target."""

    kinds: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Path] = field(default_factory=dict)
    worst_seconds: float = 0.0
    worst_peak: int = 0

    def add(self, target: Target, data: bytes, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        self.worst_seconds = max(self.worst_seconds, outcome.seconds)
        self.worst_peak = max(self.worst_peak, outcome.peak)
        if outcome.kind == "finding" and outcome.why not in self.findings:
            self.findings[outcome.why] = keep(target, data, len(self.findings))


def keep(target: Target, data: bytes, n: int) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{target.name.replace(' ', '-')}-{n}.bin"
    path.write_bytes(data)
    return path


def fuzz(targets: list[Target], *, minutes: float, seed: int) -> dict[str, Tally]:
    """Runs cases of each target in turn until the time limit. Case n of a target depends on seed
    and n alone.
    """
    tallies = {target.name: Tally() for target in targets}
    end, batch = time.monotonic() + 60 * minutes, 0
    tracemalloc.start()
    while time.monotonic() < end:
        target = targets[batch % len(targets)]
        first = batch // len(targets) * BATCH
        for n in range(first, first + BATCH):
            data, outcome = run_case(target, Random(f"{seed}/{target.name}/{n}"))
            tallies[target.name].add(target, data, outcome)
        batch += 1
    tracemalloc.stop()
    return tallies


def show(tallies: dict[str, Tally], seconds: float, seed: int) -> int:
    """Prints the table. Returns the number of distinct findings."""
    print(f"{'target':<20}{'cases':>9}  {'worst s':>8} {'worst MiB':>9}  outcomes")
    for name, tally in tallies.items():
        kinds = ", ".join(f"{kind} {n}" for kind, n in tally.kinds.most_common())
        worst = f"{tally.worst_seconds:>8.3f} {tally.worst_peak / (1 << 20):>9.2f}"
        print(f"{name:<20}{tally.kinds.total():>9}  {worst}  {kinds}")
    for name, tally in tallies.items():
        for why, path in tally.findings.items():
            print(f"FINDING in {name}: {why}; file stored as {path}")
    n_cases = sum(tally.kinds.total() for tally in tallies.values())
    n_findings = sum(len(tally.findings) for tally in tallies.values())
    print(f"{n_cases} cases in {seconds:.0f} s, {n_findings} different findings, seed {seed}")
    return n_findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target", choices=[target.name for target in TARGETS])
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    chosen = [target for target in TARGETS if options.target in (None, target.name)]
    begun = time.monotonic()
    tallies = fuzz(chosen, minutes=options.minutes, seed=options.seed)
    return 1 if show(tallies, time.monotonic() - begun, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Camelid's cpu beside llama.cpp's: `python -m tests.perf.rivals_table FILE.gguf ... [--json OUT.json]`.

For each file a prefill of 512 tokens, and decode at depth 0 and 4,096, in turns (`rivals`): median tokens a
second with their spread, llama.cpp with flash attention on and off, and the verdict on the target against the
faster of these two. Files: `python -m tests.perf.shapes`. Nine of them take about 25 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tests.perf.rivals import Duel, Setting, open_sides

from camelid.cli.bench_cases import Case
from camelid.cli.bench_report import Report, Spread, short

DEEP = 4096
LEAST_RATIO, LEAST_SHARE = 1.5, 0.85
HEAD = (
    "file", "test", "camelid tok/s", "flash on", "flash off", "ratio", "GB/s read", "of read bandwidth",
    "target", "met",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """The limits of a case."""

    text: str
    is_met: Callable[[Duel], bool]


RATIO = Target(f"{LEAST_RATIO}x", lambda duel: duel.ratio >= LEAST_RATIO)
DECODE = Target(
    f"{LEAST_RATIO}x or {LEAST_SHARE:.0%} of bandwidth",
    lambda duel: duel.ratio >= LEAST_RATIO or duel.ours.read_share >= LEAST_SHARE,
)


def targets(n_prompt: int, n_gen: int, n_deep: int, depth: int) -> Mapping[Case, Target]:
    """The cases of each file, in order."""
    return {
        Case("pp", n_prompt): RATIO,
        Case("tg", n_gen): DECODE,
        Case("tg", n_deep, depth): RATIO,
    }


def line(path: Path, duel: Duel, target: Target) -> str:
    """A row of the table."""
    ours = duel.ours
    theirs = (short(Spread.of(duel.rows[name].rival)) if name in duel.rows else "-" for name in ("on", "off"))
    cells = (
        path.name, ours.case, short(ours.spread), *theirs, f"{duel.ratio:.2f}",
        f"{ours.yardstick.read_gbps:.1f}", f"{ours.read_share:.0%}", target.text,
        "yes" if target.is_met(duel) else "**no**",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


async def measure(path: Path, setting: Setting, wanted: Mapping[Case, Target]) -> list[Report]:
    """Measures one file, printing each line at once. Returns the facts."""
    found: list[Report] = []
    async with AsyncExitStack() as stack:
        sides = await open_sides(stack, path, setting)
        for case, target in wanted.items():
            duel = await sides.duel(case, setting.repetitions)
            print(line(path, duel, target), flush=True)
            found.append(
                {"file": path.name, "met": target.is_met(duel), "heading": sides.heading, **duel.facts()}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("--n-deep", type=int, default=16, help="Tokens decoded at the depth.")
    parser.add_argument("-d", "--depth", type=int, default=DEEP)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--json", type=Path, help="Also write all figures to this file.")
    args = parser.parse_args()
    wanted = targets(args.n_prompt, args.n_gen, args.n_deep, args.depth)
    setting = Setting(
        cases=list(wanted), threads=args.threads, repetitions=args.repetitions, kv_type=args.kv_type
    )
    found: list[Report] = []
    print(f"{setting.threads} threads, keys and values {setting.kv_type}, {setting.repetitions} times each")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    begun = perf_counter()
    for path in args.files:
        found += asyncio.run(measure(path, setting, wanted))
        print(f"{path.name}: {perf_counter() - begun:.0f} s so far", file=sys.stderr)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1), "utf-8")
    print(found[-1]["heading"])
    n_met = sum(bool(each["met"]) for each in found)
    print(f"{n_met} of {len(found)} targets are met")


if __name__ == "__main__":
    main()

"""Two checkouts in alternating pairs: `python -m tests.perf.checkouts BASE [OTHER] [--pairs 10] [--null]`.

Fresh processes alternate, every second pair in reverse order; the first pair is not counted. A ratio is the
other's time over the base's: above 1 is slower. The spread is the median absolute deviation of the pairs'
ratios. Target: no median ratio above 1.02 by more than the spread. --null compares the base with itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import time

from tests.perf.first_token import with_bytecode
from tests.perf.shapes import SHAPES, write

HERE = Path(__file__).resolve().parents[2]
WORK = Path(__file__).with_name("checkout_work.py")
SHAPE = "SmolLM2-135M"
FILES = ("q4_0", "q8_0")  # weight types of the shape's files
PARTS = ("cria", *FILES, "engine")
ALLOWED = 1.02
NOISE = 0.05  # above this spread, equal checkouts measured ratios of 0.65 and 1.15


@dataclass(frozen=True, slots=True)
class Row:
    """One measure's figures on both sides, pair by pair."""

    name: str
    base: Sequence[float]
    other: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Other's time over the base's; inverted for rates."""
        pairs = zip(self.base, self.other, strict=True)
        return [a / b if "tok/s" in self.name else b / a for a, b in pairs]

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios."""
        return median(self.ratios)

    @property
    def spread(self) -> float:
        """Median absolute deviation of the pairs' ratios."""
        return median(abs(ratio - self.ratio) for ratio in self.ratios)

    @property
    def verdict(self) -> str:
        """The ratio against the target; undecided if the pairs differ too much."""
        if self.spread > NOISE:
            return "undecided: noise"
        if self.ratio <= ALLOWED:
            return "holds"
        return "within the spread" if self.ratio <= ALLOWED + self.spread else "WORSE"

    def line(self) -> str:
        """A row of the table."""
        sides = f"{median(self.base):.1f} | {median(self.other):.1f}"
        lowest, highest = min(self.ratios), max(self.ratios)
        found = f"{self.ratio:.3f} | {self.spread:.3f} | {lowest:.3f} to {highest:.3f}"
        return f"| {self.name} | {sides} | {found} | {self.verdict} |"


HEADING = "| measure | base | other | ratio | spread | all ratios | verdict |\n|---|---|---|---|---|---|---|"


def shape_file(kind: str) -> Path:
    """A file of random weights, written once."""
    path = Path(tempfile.gettempdir()) / f"camelid-{SHAPE}-{kind}.gguf"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        write(SHAPE, SHAPES[SHAPE], kind, part)
        part.replace(path)
    return path


def arguments(part: str) -> list[str]:
    """Arguments of a part's process."""
    if part == "engine":
        return ["engine"]
    return ["model", str(shape_file(part)) if part in FILES else part]


def work(checkout: Path, part: str, threads: int, env: Mapping[str, str]) -> dict[str, float]:
    """Figures of one fresh process on a checkout."""
    path = os.pathsep.join(str(checkout / name) for name in ("core", "native"))
    command = [sys.executable, "-P", str(WORK), repr(time()), str(threads), *arguments(part)]
    own = {**env, "PYTHONPATH": path}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=own, cwd=checkout)
    said = json.loads(done.stdout.splitlines()[-1])
    if not Path(said["from"]).is_relative_to(checkout):
        raise SystemExit(f"camelid came from {said['from']}, not from {checkout}")
    return {f"{part}: {name}": value for name, value in said["figures"].items()}


def in_turns(sides: Sequence[Path], part: str, pair: int, threads: int, env: Mapping[str, str]) -> list[Row]:
    """Rows of one part with this pair's figures, the sides in the pair's order."""
    found: dict[int, dict[str, float]] = {}
    for side in (0, 1)[:: -1 if pair % 2 else 1]:
        found[side] = work(sides[side], part, threads, env)
    return [Row(name, [value], [found[1][name]]) for name, value in found[0].items()]


def joined(pairs: Sequence[Sequence[Row]]) -> list[Row]:
    """Rows of all pairs, merged."""
    columns = zip(*pairs, strict=True)
    return [
        Row(rows[0].name, [row.base[0] for row in rows], [row.other[0] for row in rows]) for rows in columns
    ]


def measure(sides: Sequence[Path], parts: Sequence[str], n_pairs: int, threads: int) -> list[Row]:
    """Rows of all parts; the first pair writes the bytecode and is not counted."""
    pairs: list[list[Row]] = []
    with tempfile.TemporaryDirectory() as folder:
        env = with_bytecode(folder)
        for pair in range(n_pairs + 1):
            begun = time()
            pairs.append([row for part in parts for row in in_turns(sides, part, pair, threads, env)])
            print(f"pair {pair} of {n_pairs}: {time() - begun:.1f} s", file=sys.stderr, flush=True)
    return joined(pairs[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("other", type=Path, nargs="?", default=HERE)
    parser.add_argument("-n", "--pairs", type=int, default=10)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["cria", "q4_0", "engine"])
    parser.add_argument(
        "--null", action="store_true", help="Compare the base with itself, to measure the spread."
    )
    args = parser.parse_args()
    sides = [args.base.resolve(), (args.base if args.null else args.other).resolve()]
    rows = measure(sides, args.parts, args.pairs, args.threads)
    print(f"base {sides[0]}, other {sides[1]}: {args.pairs} pairs\n\n{HEADING}")
    print("\n".join(row.line() for row in rows))


if __name__ == "__main__":
    main()

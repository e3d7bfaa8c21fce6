"""`python -m tests.vectors`: the text layer inside Pyodide under Node, compared with natively run oracles.

`--all` tests every code point for every splitter (minutes) instead of a seeded 2 %. `--speed` times the text
layer instead, natively and in Pyodide.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.vectors import replay
from tests.vectors.inside import ROOT, inside_pyodide
from tests.vectors.speed_data import print_speeds
from tests.vectors.subjects import SHARE, vectors


def shared_material() -> Path | None:
    place = Path(os.environ.get("CAMELID_SHARED") or ROOT.parent / "shared")
    return place if (place / "data").is_dir() else None


def print_table(rows: list[replay.Vector]) -> int:
    """Prints a line per kind, and one per subject with a wrong answer. Returns the number of wrong
    answers.
    """
    kinds: dict[str, list[replay.Vector]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    print("| kind | subjects | inputs | wrong | seconds |\n|---|---|---|---|---|")
    for kind, found in kinds.items():
        inputs, wrong = (sum(row[key] for row in found) for key in ("inputs", "wrong"))
        seconds = sum(row["made_s"] + row["run_s"] for row in found)
        print(f"| {kind} | {len(found)} | {inputs:,} | {wrong} | {seconds:.1f} |")
    for row in rows:
        if row["wrong"]:
            print(f"{row['kind']} {row['name']}: {row['wrong']} wrong, first {row['first']!r:.200}")
    return sum(row["wrong"] for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vectors", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every code point for every splitter")
    parser.add_argument("--speed", action="store_true", help="time the text layer instead")
    options = parser.parse_args()
    shared = shared_material()
    if shared is None:
        print("shared material absent: no real vocabularies and templates; set CAMELID_SHARED")
    with tempfile.TemporaryDirectory() as folder:
        if options.speed:
            return print_speeds(Path(folder), shared)
        path = Path(folder) / "vectors.gz"
        replay.write(str(path), vectors(1.0 if options.all else SHARE, shared))
        print("native")
        wrong = print_table(replay.report(str(path)))
        print("Pyodide")
        return 1 if print_table(inside_pyodide("replay.py", "report_json", path)) + wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

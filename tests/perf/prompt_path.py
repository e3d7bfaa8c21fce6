"""Source files from a text to its first token: `python -m tests.perf.prompt_path [CHECKOUT] [--backend cpu]`.

A fresh process loads cria; the cold call is its first, the warm call its second. Called files have a function
that runs before the first token; imports alone do not count. Passed files are on the call stack where the
prompt changes its form: text, ids, step, results, bytes, event.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
TRACE = Path(__file__).with_name("prompt_trace.py")
BACKENDS = ("cpu", "reference")
TARGETS = {"passed": 8, "called by the cold call": 30}


def trace(checkout: Path, backend: str) -> dict[str, Any]:
    """Files used by a fresh process on a checkout, by their use."""
    path = os.pathsep.join(str(checkout / name) for name in ("core", "native"))
    command = [sys.executable, "-P", str(TRACE), str(checkout), backend]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=env, cwd=checkout)
    return json.loads(done.stdout.splitlines()[-1])


def counts(files: Mapping[str, Sequence[str]]) -> list[str]:
    """Numbers of files beside their targets."""
    targets = {name: f", target {TARGETS[name]}" if name in TARGETS else "" for name in files}
    return [f"{len(found):4} files {name}{targets[name]}" for name, found in files.items()]


def chains(found: Mapping[str, Sequence[str]]) -> list[str]:
    """Call stacks at the waypoints. Missed waypoints are reported: `passed` then counts too few files."""
    return [f"  {name}: {' > '.join(files) or 'NOT MET'}" for name, files in found.items()]


def lists(files: Mapping[str, Sequence[str]]) -> list[str]:
    """Files by name; a list omits the files of the shorter lists before it."""
    lines, known = list[str](), set[str]()
    for name, found in files.items():
        new = [file for file in found if file not in known]
        more = f", besides those above: {len(new)}" if known else ""
        lines += [f"\n{len(found)} {name}{more}", *(f"  {file}" for file in new)]
        known.update(found)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", default=HERE)
    parser.add_argument("--backend", choices=BACKENDS, help="Only this backend.")
    parser.add_argument("--short", action="store_true", help="Only the numbers of files.")
    args = parser.parse_args()
    for backend in [args.backend] if args.backend else BACKENDS:
        found = trace(args.checkout.resolve(), backend)
        print("\n".join([f"\n{backend}", *counts(found["files"])]))
        if not args.short:
            print("\n".join(["waypoints", *chains(found["chains"]), *lists(found["files"])]))


if __name__ == "__main__":
    main()

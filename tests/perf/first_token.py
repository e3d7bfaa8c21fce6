"""A cold process's first token beside llama.cpp's: `python -m tests.perf.first_token FILE.gguf [--imports]`.

Fresh processes alternate, with the file's pages cached and all bytecode compiled, as pip does: median seconds
from the start of Python to the first token of a prompt of random ids. Then Camelid's time by stage, and with
--imports the time of its imports. llama.cpp chooses flash attention by itself; both sides keep f16 keys and
values for 4,096 rows.
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

# Each script prints one line of JSON at its first token: stage names and their end times.
CAMELID = """
import sys, time
marks = {{"starting Python": time.time()}}
import camelid
camelid.load
marks["import camelid"] = time.time()
stages = []
def progress(what, stage, of):
    stages.append((what, time.time()))
llm = camelid.load({path!r}, backend={backend!r}, context=4096, parallel=1, kv_type="f16",
                   threads={threads}, progress=progress)
marks |= {{what: end for (what, _), (_, end) in zip(stages, stages[1:])}}
marks["loaded"] = time.time()
next(llm.stream({ids}, max_tokens=2, temperature=0.0, ignore_eos=True))
marks["prefill"] = time.time()
import json
print(json.dumps(marks), flush=True)
"""
LLAMA_CPP = """
import sys, time
marks = {{"starting Python": time.time()}}
import llama_cpp
marks["import llama_cpp"] = time.time()
llm = llama_cpp.Llama({path!r}, n_ctx=4096, n_threads={threads}, n_threads_batch={threads}, verbose=False)
marks["loaded"] = time.time()
next(llm.generate({ids}, temp=0.0))
marks["prefill"] = time.time()
import json
print(json.dumps(marks), flush=True)
"""
SIDES = {"camelid, cpu": (CAMELID, "cpu"), "camelid, auto": (CAMELID, "auto"), "llama.cpp": (LLAMA_CPP, "")}


@dataclass(frozen=True, slots=True)
class Start:
    """One process: seconds to its first token, and seconds of each stage."""

    seconds: float
    stages: dict[str, float]


def with_bytecode(folder: str) -> Mapping[str, str]:
    """An environment that stores the bytecode of imports in this folder.

    pip compiles installed packages, but a checkout has no bytecode where PYTHONDONTWRITEBYTECODE is set.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def run(script: str, env: Mapping[str, str]) -> Start:
    """Runs a fresh process, which shares this one's clock."""
    begun = time()
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True, env=env
    )
    marks: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    before = [begun, *marks.values()]
    stages = {name: end - start for (name, end), start in zip(marks.items(), before, strict=False)}
    return Start(before[-1] - begun, stages)


def measure(path: Path, n_prompt: int, threads: int, repetitions: int) -> dict[str, list[Start]]:
    """Runs all sides alternately, every second time in reverse order: a process's memory use affects the next
    process. The first run of each side is not counted.
    """
    ids = [1 + i * 37 % 1000 for i in range(n_prompt)]
    scripts = {
        name: script.format(path=str(path), backend=backend, threads=threads, ids=ids)
        for name, (script, backend) in SIDES.items()
    }
    found: dict[str, list[Start]] = {name: [] for name in scripts}
    with tempfile.TemporaryDirectory() as folder:
        env = with_bytecode(folder)
        for i in range(repetitions + 1):
            for name in list(scripts)[:: -1 if i % 2 else 1]:
                found[name].append(run(scripts[name], env))
    return {name: starts[1:] for name, starts in found.items()}


def lines(found: dict[str, list[Start]], n_prompt: int) -> Sequence[str]:
    """A row of the table for each side, with its stages."""
    rows: list[str] = []
    for name, starts in found.items():
        all_s = sorted(start.seconds for start in starts)
        stages = ", ".join(
            f"{stage} {median(start.stages[stage] for start in starts):.3f}" for stage in starts[0].stages
        )
        spread = f"{median(all_s):.3f} ({all_s[0]:.3f} to {all_s[-1]:.3f} in {len(all_s)})"
        rows.append(f"| {n_prompt} | {name} | {spread} | {stages} |")
    return rows


def imports(path: Path) -> None:
    """Prints the slowest imports of a first token, by their own time."""
    script = CAMELID.format(path=str(path), backend="cpu", threads=1, ids=[1])
    command = [sys.executable, "-X", "importtime", "-c", script]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the first run writes the bytecode
            env = with_bytecode(folder)
            done = subprocess.run(command, capture_output=True, check=True, text=True, env=env)
    rows = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")][1:]
    own = sorted(((int(own.split(":")[1]), name.strip()) for own, _, name in rows), reverse=True)
    print(f"\n{len(own)} modules, {sum(us for us, _ in own) / 1e3:.0f} ms (with -X importtime)")
    for us, name in own[:15]:
        print(f"{us / 1e3:7.1f} ms  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-p", "--n-prompt", type=int, nargs="+", default=[8, 512])
    parser.add_argument("--imports", action="store_true", help="Also the time of Camelid's imports.")
    args = parser.parse_args()
    print("| prompt | side | seconds to the first token | of which |\n|---|---|---|---|", flush=True)
    for n_prompt in args.n_prompt:
        found = measure(args.file, n_prompt, args.threads, args.repetitions)
        print("\n".join(lines(found, n_prompt)), flush=True)
    if args.imports:
        imports(args.file)


if __name__ == "__main__":
    main()

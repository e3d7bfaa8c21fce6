"""Peak memory of a process beside the estimate: `python -m tests.perf.peak_memory FILE.gguf ...`.

A fresh process loads each file on cpu for one sequence and fills nearly the whole context. Its peak resident
memory must stay below 1.05 of the packed weights + state + 150 MB, and the estimate of `camelid info
--memory` must be within 10 % of the peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MARGIN, SPARE_BYTES, TOLERANCE = 1.05, 150e6, 0.10
ANSWER = 8  # tokens
HEAD = ("file", "weights", "state", "peak", "most", "kept", "info --memory", "off by", "within 10 %")
# The measured process; it prints one line of JSON.
FILL = """
import json, resource, sys
import camelid
path, context = sys.argv[1], int(sys.argv[2])
with camelid.load(path, backend="cpu", context=context, parallel=1) as llm:
    prompt = [1 + i * 37 % 1000 for i in range(context - {answer})]
    llm.generate(prompt, max_tokens={answer}, ignore_eos=True, temperature=0.0)
    memory = llm.memory()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([peak, memory.weight_bytes, memory.state_bytes]))
"""


def run(*words: object) -> Any:
    """JSON output of a fresh Python process."""
    done = subprocess.run([sys.executable, *map(str, words)], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def foretold(path: Path, context: int) -> int:
    """The total of `camelid info --memory`."""
    words = ("--memory", "--backend", "cpu", "--parallel", 1, "-c", context, "--json")
    return run("-m", "camelid", "info", path, *words)["memory"]["at"]["as stored"]["total"]


def line(path: Path, context: int) -> str:
    """A row of the table."""
    peak, weights, state = run("-c", FILL.format(answer=ANSWER), path, context)
    told, most = foretold(path, context), MARGIN * weights + state + SPARE_BYTES
    off = told / peak - 1
    sizes = [f"{n / 1e6:,.0f} MB" for n in (weights, state, peak, most)]
    kept, right = (("**no**", "yes")[is_so] for is_so in (peak <= most, abs(off) <= TOLERANCE))
    return f"| {path.name} | {' | '.join(sizes)} | {kept} | {told / 1e6:,.0f} MB | {off:+.1%} | {right} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-c", "--context", type=int, default=512)
    args = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    for path in args.files:
        print(line(path, args.context), flush=True)


if __name__ == "__main__":
    main()

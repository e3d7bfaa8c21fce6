"""Host time of a decode step on webgpu: `python -m tests.perf.host_time [MODEL] [--adapter llvmpipe]`.

Times the encoding of dispatches and the whole submission of a step, from its bytes to the queue. An idle
machine is required: a software adapter computes on the same cores.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import camelid
from camelid.api.llm import LLM
from camelid.backends.webgpu import host_python

TOKENS = 100


def timed(owner: Any, name: str) -> list[float]:
    """The seconds of each call from now on of a function of a module or class."""
    seconds, plain = list[float](), getattr(owner, name)

    def call(*arguments: Any) -> Any:
        start = perf_counter()
        try:
            return plain(*arguments)
        finally:
            seconds.append(perf_counter() - start)

    setattr(owner, name, call)
    return seconds


def measure(llm: LLM) -> None:
    """Prints microseconds of a step and of a dispatch, medians over the steps of an answer."""
    llm.generate("Hello", max_tokens=8, ignore_eos=True)
    steps, encodings = timed(host_python.Program, "submit"), timed(host_python, "_encode")
    before = llm.memory().counters["dispatches"]
    llm.generate("Hello", max_tokens=TOKENS, ignore_eos=True, temperature=0.0)
    each = (llm.memory().counters["dispatches"] - before) / len(steps)
    step, encoding = 1e6 * median(steps), 1e6 * median(encodings)
    print(f"{each:.1f} dispatches a step: {step:.0f} µs, {step / each:.1f} per dispatch")
    print(f"of these, encoding: {encoding:.0f} µs, {encoding / each:.1f} per dispatch")


def main() -> None:
    parser = argparse.ArgumentParser(description="Host time of a decode step on webgpu")
    parser.add_argument("model", nargs="?", default="cria")
    parser.add_argument("--adapter", default="llvmpipe", help="part of the adapter's name")
    how = parser.parse_args()
    with camelid.load(how.model, backend="vulkan", adapter=how.adapter, parallel=1) as llm:
        measure(llm)


if __name__ == "__main__":
    main()

"""Time of a step by op on cpu: `python -m tests.perf.op_times FILE.gguf [--depth 4096]`.

A decode step and a full prefill step, recorded from the engine, are replayed op by op: each op as a separate
program, in order, so that it finds the caches in the usual state. The cost of an empty program is subtracted
from each: ops of a few microseconds may be some ten microseconds off. The table adds the whole step in one
call, and the engine's time for a token: the difference is Python and sampling. Medians over several passes.
"""

from __future__ import annotations

import argparse
import ctypes
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.backends.base import Program, Ticket
from camelid.backends.common.bandwidth import read_gbps
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.loading.options import LoadOptions
from camelid.loading.start import start
from camelid.plan.cost import step_counts
from camelid.plan.ops import op_bytes, op_flops
from camelid.plan.step import decode_step
from camelid_native.cpu.backend import CpuBackend
from camelid_native.cpu.records import OpRecord, ProgramRecord
from camelid_native.cpu.runner import CpuProgram

ANSWER = 32  # tokens
HEAD = ("op", "calls", "ms", "share", "MB", "GB/s", "GFLOP/s")


@dataclass(frozen=True, slots=True)
class Kept:
    """A program with the last step that the engine ran on it."""

    program: Program
    step: bytes


class Recorder:
    """A backend that records the last step of each program."""

    def __init__(self, backend: CpuBackend) -> None:
        self.kept: dict[str, Kept] = {}
        self.backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Enqueues the step."""
        self.kept[program.key.entry] = Kept(program, step)
        return self.backend.run(program, step, inputs)


class Replay:
    """Replays parts of a recorded step."""

    def __init__(self, backend: CpuBackend, kept: Kept) -> None:
        own: CpuProgram = kept.program.handle
        self._library, self._own = backend._library, own
        self._pool = self._library.start(backend._cpus, with_host=False)
        self._step = kept.step
        first, each = own.record.ops, ctypes.sizeof(OpRecord)
        self._none = self._part(first, 0)
        self._ops = [self._part(first + i * each, 1) for i in range(own.record.n_ops)]

    def close(self) -> None:
        """Ends its threads."""
        self._library.stop(self._pool)

    def _part(self, ops: int, n_ops: int) -> ProgramRecord:
        part = ProgramRecord.from_buffer_copy(self._own.record)
        part.ops, part.n_ops = ops, n_ops
        return part

    def _seconds(self, record: ProgramRecord) -> float:
        begun = perf_counter()
        self._library.submit(self._pool, ctypes.addressof(record), self._step, self._own.results[0].at)
        self._library.wait(self._pool)
        return perf_counter() - begun

    def whole(self, passes: int) -> float:
        """Seconds of the step in one call."""
        return median(self._seconds(self._own.record) for _ in range(passes))

    def each(self, passes: int) -> list[float]:
        """Seconds of every op, in order, without the cost of a call."""
        call = median(self._seconds(self._none) for _ in range(200))
        runs = [[self._seconds(op) for op in self._ops] for _ in range(passes)]
        return [max(median(times) - call, 0.0) for times in zip(*runs, strict=True)]


def rows(kept: Kept, seconds: list[float]) -> Iterator[str]:
    """One row for each kind of op, the slowest first."""
    plan = kept.program.plan
    counts = step_counts(plan, decode_step(kept.step, plan.layout))
    spent, n_bytes, flops = (defaultdict[str, float](float) for _ in range(3))
    calls = Counter(map(kind, plan.ops))
    for op, took in zip(plan.ops, seconds, strict=True):
        spent[kind(op)] += took
        n_bytes[kind(op)] += op_bytes(op, plan, counts)
        flops[kind(op)] += op_flops(op, counts)
    for name, took in sorted(spent.items(), key=lambda item: -item[1]):
        rates = (n_bytes[name] / took / 1e9, flops[name] / took / 1e9) if took else (0.0, 0.0)
        share = took / sum(seconds)
        yield (
            f"| {name} | {calls[name]} | {took * 1e3:.3f} | {share:.1%} | {n_bytes[name] / 1e6:.1f} | "
            f"{rates[0]:.1f} | {rates[1]:.0f} |"
        )


def kind(op: Any) -> str:
    """An op's name, followed by its weight's role in a layer if it has a matrix."""
    matrix = next((w for w in op.weights() if len(w.shape) > 1), None)
    role = matrix.name.removesuffix(".weight").split(".")[-1] if matrix else ""
    return f"{op.name} {role}".strip()


def profile(path: Path, depth: int, threads: int | None, kv_type: str, passes: int) -> None:
    """Prints both tables."""
    runner = Runner()
    chunk = Limits().chunk
    prompt = [1 + i * 37 % 1000 for i in range(max(depth // chunk, 1) * chunk)]
    options = LoadOptions(
        backend="cpu", threads=threads, context=len(prompt) + ANSWER + 8, parallel=1, kv_type=kv_type
    )
    running = runner.run(start(str(path), options))
    backend: Any = running.backend
    recorder: Any = Recorder(backend)
    running.engine.backend = recorder
    with LLM(running, runner) as llm:
        done = llm.generate(prompt, max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
        print(f"{path.name}, {llm.capabilities.device}, {len(prompt)} rows held, {read_gbps():.1f} GB/s read")
        for entry in (DECODE, MIXED):
            kept: Kept = recorder.kept[entry]
            with closing(Replay(backend, kept)) as replay:
                seconds, whole = replay.each(passes), replay.whole(passes)
            n = len(decode_step(kept.step, kept.program.plan.layout).rows)
            print(f"\n{entry}, {n} rows\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
            print("\n".join(rows(kept, seconds)))
            print(f"sum of ops {sum(seconds) * 1e3:.3f} ms, the step in one call {whole * 1e3:.3f} ms")
        print(f"the engine: {1e3 / done.timings.decode_tps:.3f} ms a token")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("-d", "--depth", type=int, default=512, help="Rows in the KV cache, in whole chunks.")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--passes", type=int, default=9)
    args = parser.parse_args()
    profile(args.file, args.depth, args.threads, args.kv_type, args.passes)


if __name__ == "__main__":
    main()

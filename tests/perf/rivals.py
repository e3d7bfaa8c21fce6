"""Camelid and llama.cpp in turns on one file, for the tables of `rivals_table` and `rivals_sweep`.

One process loads the model in Camelid and, with flash attention on and off, in llama.cpp. Each side computes
a case's prefix once, before timing. The read bandwidth is measured between the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from camelid.backends.base import Backend
from camelid.backends.common.bandwidth import read_gbps
from camelid.cli.bench_cases import Case
from camelid.cli.bench_llama_cpp import LlamaCpp
from camelid.cli.bench_predict import Yardstick, predict
from camelid.cli.bench_report import Report, Row, Spread
from camelid.cli.bench_runs import Bench, Run, open_bench
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.loading.options import LoadOptions

FLASH = ("on", "off")
READ_BYTES = 128 << 20  # beyond the caches, and short enough to read between two runs
CHUNK = Limits().chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings shared by both sides."""

    cases: Sequence[Case]
    threads: int
    repetitions: int = 5
    kv_type: str = "f16"
    flash: Sequence[str] = FLASH

    @property
    def context(self) -> int:
        """The longest stream."""
        return max(case.rows(CHUNK) for case in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """One case against each flash attention setting of the rival."""

    rows: dict[str, Row]

    @property
    def ours(self) -> Row:
        """Camelid's side, equal in each row."""
        return next(iter(self.rows.values()))

    @property
    def ratio(self) -> float:
        """Camelid's rate over the rival's faster setting."""
        return min(row.ratio for row in self.rows.values())

    def facts(self) -> Report:
        """Report for --json: Camelid's figures once, the rival's by its flash attention."""
        rivals = {name: Spread.of(row.rival).facts() for name, row in self.rows.items()}
        own = {name: value for name, value in self.ours.facts().items() if name != "rival"}
        return own | {"rivals": rivals, "ratio": self.ratio}


@dataclass(slots=True)
class Sides:
    """The model, loaded on all sides."""

    bench: Bench
    rivals: dict[str, LlamaCpp]

    @property
    def heading(self) -> str:
        """Name and version of each side."""
        device = self.bench.llm.capabilities.device
        return f"camelid: cpu, {device}\nllama.cpp: {next(iter(self.rivals.values())).build}"

    async def duel(self, case: Case, repetitions: int) -> Duel:
        """Alternating runs; the first of each side is not counted."""
        ours: list[Run] = []
        theirs: dict[str, list[Run]] = {name: [] for name in self.rivals}
        reads: list[float] = []
        for repetition in range(repetitions + 1):
            reads.append(read_gbps(READ_BYTES, 1))
            ours.append(await self.bench.run(case, repetition))
            for name, rival in self.rivals.items():
                theirs[name].append(rival.run(case, repetition))
        yardstick = Yardstick(median(reads), peak_gflops(self.bench.backend))
        plan = self.bench.llm.plan(MIXED if case.kind == "pp" else DECODE)
        prediction = predict(case, plan, yardstick, CHUNK)
        rows = {
            name: Row(case=case, yardstick=yardstick, prediction=prediction, runs=ours[1:], rival=runs[1:])
            for name, runs in theirs.items()
        }
        return Duel(rows=rows)


def peak_gflops(backend: Backend) -> float:
    """The backend's peak arithmetic rate."""
    return Yardstick.measure(backend).gflops


async def open_sides(stack: AsyncExitStack, path: Path, setting: Setting) -> Sides:
    """Loads the file on all sides, to be closed with the stack."""
    options = LoadOptions(
        backend="cpu",
        threads=setting.threads,
        context=setting.context,
        parallel=1,
        chunk=CHUNK,
        kv_type=setting.kv_type,
    )
    rivals = {name: stack.enter_context(open_rival(path, setting, name)) for name in setting.flash}
    bench = await stack.enter_async_context(open_bench(str(path), options, perf_counter))
    return Sides(bench, rivals)


def open_rival(path: Path, setting: Setting, flash: str) -> LlamaCpp:
    """llama.cpp with the same context, threads and types of keys and values."""
    return LlamaCpp(
        path,
        context=setting.context,
        batch=1,
        threads=setting.threads,
        kv_type=setting.kv_type,
        clock=perf_counter,
        flash_attention=flash,
    )

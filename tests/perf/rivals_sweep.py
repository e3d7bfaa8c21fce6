"""Camelid's cpu beside llama.cpp's over shapes and types: `python -m tests.perf.rivals_sweep [--minutes 8]`.

Files of random weights with few layers are written one by one into a temporary folder and measured in turns
(`rivals`): prefill and decode, llama.cpp choosing flash attention by itself. The last line is the least
ratio; the target is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from math import prod
from pathlib import Path
from time import perf_counter

from tests.perf.rivals import Setting, open_sides
from tests.perf.shapes import TYPES, Shape, tensors, write

from camelid.cli.bench_cases import Case
from camelid.cli.bench_report import Report, Spread, short
from camelid.formats.quants import quant

MOST_BYTES = 150_000_000
PREFILL, DECODE = Case("pp", 128), Case("tg", 32)
HEAD = ("shape", "type", "MB", "prefill tok/s", "llama.cpp", "ratio", "decode tok/s", "llama.cpp", "ratio")


def shape(
    hidden: int, ffn: int, heads: int, kv_heads: int, head_dim: int, vocab: int,
    *, layers: int = 2, experts: int = 0, used: int = 0,
) -> Shape:  # fmt: skip
    return Shape(
        arch="qwen3moe" if experts else "llama", layers=layers, hidden=hidden, ffn=ffn, heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocab=vocab, rope_theta=10000.0, head_norms=bool(experts),
        experts=experts, experts_used=used,
    )  # fmt: skip


SHAPES = (
    shape(256, 1024, 4, 4, 64, 4000, layers=4),
    shape(512, 1536, 8, 2, 64, 32000, layers=4),
    shape(576, 1536, 9, 3, 64, 8000, layers=4),
    shape(768, 2048, 12, 12, 64, 32000),
    shape(768, 3072, 12, 4, 64, 50000),
    shape(896, 4864, 14, 2, 64, 16000),
    shape(1024, 3072, 16, 8, 128, 32000),
    shape(1024, 2816, 16, 16, 64, 8000),
    shape(1280, 5120, 20, 4, 64, 16000),
    shape(1536, 8960, 12, 2, 128, 4000),
    shape(1600, 6400, 25, 25, 64, 4000),
    shape(2048, 5632, 32, 4, 64, 8000),
    shape(2048, 8192, 16, 16, 128, 4000),
    shape(2048, 6144, 8, 1, 256, 2000),
    shape(2304, 9216, 8, 4, 256, 2000),
    shape(2560, 6912, 32, 32, 80, 4000, layers=1),
    shape(3072, 8192, 24, 8, 128, 2000, layers=1),
    shape(4096, 11008, 32, 32, 128, 2000, layers=1),
    shape(512, 512, 8, 2, 64, 16000, experts=8, used=2),
    shape(1024, 768, 16, 4, 64, 8000, experts=16, used=4),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One file."""

    shape: Shape
    type_name: str

    @property
    def name(self) -> str:
        s = self.shape
        experts = f", {s.experts_used} of {s.experts} experts" if s.experts else ""
        return f"{s.hidden}/{s.ffn}, {s.heads}:{s.kv_heads} x {s.head_dim}, {s.vocab}{experts}"

    @property
    def n_bytes(self) -> int:
        """Bytes of all matrices."""
        row = quant(self.type_name)
        return sum(prod(size) for _, size, _ in tensors(self.shape)) * row.block_bytes // row.block

    @property
    def fits(self) -> bool:
        """True if rows are whole blocks and the file is small."""
        block = quant(self.type_name).block
        whole = not any(cols % block for _, (*_, cols), _ in tensors(self.shape))
        return whole and self.n_bytes <= MOST_BYTES


def trials(per_shape: int) -> Iterator[Trial]:
    """`per_shape` types for each shape; types alternate over the shapes that fit them."""
    types = cycle(TYPES)
    for each in SHAPES:
        fitting = (trial for trial in (Trial(each, name) for name in types) if trial.fits)
        yield from islice(fitting, per_shape)


Ratios = tuple[float, ...]  # prefill, decode


async def measure(trial: Trial, path: Path, setting: Setting) -> tuple[Ratios, Report]:
    """Measures one file and prints its line. Returns its ratios and figures."""
    write(trial.name, trial.shape, trial.type_name, path)
    async with AsyncExitStack() as stack:
        sides = await open_sides(stack, path, setting)
        duels = [await sides.duel(case, setting.repetitions) for case in setting.cases]
    path.unlink()
    cells = [trial.name, trial.type_name, f"{trial.n_bytes / 1e6:.0f}"]
    for duel in duels:
        rival = next(iter(duel.rows.values())).rival
        cells += [short(duel.ours.spread), short(Spread.of(rival)), f"{duel.ratio:.2f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    figures = {duel.ours.case.kind: duel.facts() for duel in duels}
    return tuple(d.ratio for d in duels), {"shape": trial.name, "type": trial.type_name, **figures}


async def sweep(wanted: list[Trial], setting: Setting, seconds: float) -> list[tuple[Ratios, Report]]:
    """Measures files until the time limit."""
    begun, found = perf_counter(), list[tuple[Ratios, Report]]()
    with tempfile.TemporaryDirectory() as folder:
        for trial in wanted:
            if perf_counter() - begun > seconds:
                break
            found.append(await measure(trial, Path(folder, "sweep.gguf"), setting))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--per-shape", type=int, default=4, help="Types for each shape.")
    parser.add_argument("--minutes", type=float, default=8, help="No file starts after this time.")
    parser.add_argument("--json", type=Path, help="Also write all figures to this file.")
    args = parser.parse_args()
    setting = Setting(
        cases=(PREFILL, DECODE), threads=args.threads, repetitions=args.repetitions, flash=("auto",)
    )
    wanted = list(trials(args.per_shape))
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    found = asyncio.run(sweep(wanted, setting, 60 * args.minutes))
    least = [min(ratios) for ratios in zip(*(ratios for ratios, _ in found), strict=True)]
    print(f"{len(found)} of {len(wanted)} files; least ratio: prefill {least[0]:.2f}, decode {least[1]:.2f}")
    if args.json:
        args.json.write_text(json.dumps([facts for _, facts in found], indent=1), "utf-8")


if __name__ == "__main__":
    main()

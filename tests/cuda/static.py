"""Machine code of all kernels for GPUs that are not here: `python -m tests.cuda.static [ARCH...] [--sample]`.

Prints a table in Markdown, and ends with status 1 if a kernel is beyond a bound.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.cuda.static_listing import ARCHS, Code, compiled, missing
from tests.cuda.static_modules import all_modules, has_instructions, is_product, kernels_of, sample, title

from camelid_native.cuda.compiler import Module

WIDE = 16  # bytes of a load
# Bytes of a thread: NVIDIA's assembler spills a word or two where that makes room for more warps.
MOST_SCRATCH = 8
# In products of 64 rows, whose 512 threads have 128 registers each: a block of weights on its way here,
# and the sums of the first half of a gated product, once a turn of 16 or 32 matrix instructions.
MOST_OF_GEMMS = 104
# In attention with four heads of 128 on AMD's GPUs whose threads have 256 registers: in a prompt's kernel (80
# bytes on gfx1201 are 42 of 7,000 instructions), and on gfx906 in the split of a two-tier cache.
FEW_REGISTERS = ("gfx906", "gfx1030", "gfx1100", "gfx1201")
MOST_OF_HEADS = {"attention_rows": 100, "attention_split": 32}
HEAD = (
    "| arch | kernel | registers | scratch | shared | waves | load | dots | mma | instructions |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel on an architecture."""

    arch: str
    title: str
    is_product: bool
    code: Code

    def line(self) -> str:
        """A row of the table."""
        c, kinds = self.code, self.code.mix.kinds
        waves = f"{c.waves}/{c.most_waves}"
        cells = (c.registers, c.scratch, c.shared, waves, c.widest, kinds.get("dot", 0), kinds.get("mma", 0))
        return f"| {self.arch} | {self.title} | {' | '.join(map(str, cells))} | {sum(kinds.values())} |"

    @property
    def most_scratch(self) -> int:
        if "GEMM=64" in self.title:
            return MOST_OF_GEMMS
        if self.arch in FEW_REGISTERS:
            return MOST_OF_HEADS.get(self.title.split()[0], MOST_SCRATCH)
        return MOST_SCRATCH

    def faults(self) -> Iterator[str]:
        """A line per bound that the kernel is beyond."""
        if self.code.scratch > self.most_scratch:
            yield f"{self.arch} {self.title}: {self.code.scratch} bytes of stack or spills a thread"
        if self.is_product and self.code.widest < WIDE:
            yield f"{self.arch} {self.title}: no load of {WIDE} bytes"
        if self.is_product and not self.code.mix.kinds.get("dot") and not self.code.mix.kinds.get("mma"):
            yield f"{self.arch} {self.title}: no integer dot products"
        by_matrix = self.is_product and (" GEMM=" in self.title or " MANY=" in self.title)
        if by_matrix and not self.code.mix.kinds.get("mma"):
            yield f"{self.arch} {self.title}: no matrix instructions"


def rows(modules: Sequence[Module], arch: str) -> Iterator[Row]:
    """All kernels of the modules on an architecture that has their instructions.

    Raises BackendError with a compiler's log.
    """
    modules = [module for module in modules if has_instructions(arch, module)]
    with ThreadPoolExecutor() as pool:
        for module, codes in zip(modules, pool.map(lambda one: compiled(one, arch), modules), strict=True):
            for kernel in kernels_of(module):
                yield Row(arch, title(module, kernel), is_product(module, kernel), codes[kernel.name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("archs", nargs="*", metavar="ARCH", help=f"of {', '.join(ARCHS)}; default: all")
    parser.add_argument("--sample", action="store_true", help="each file, header and macro once")
    args = parser.parse_args()
    if unknown := set(args.archs).difference(ARCHS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(ARCHS)}")
    modules = sample() if args.sample else all_modules()
    print(HEAD)
    faults: list[str] = []
    for arch in args.archs or ARCHS:
        if reason := missing(arch):
            faults.append(f"{arch}: {reason}")
            continue
        start = time.perf_counter()
        for row in rows(modules, arch):
            print(row.line(), flush=True)
            faults += row.faults()
        print(f"{arch}: {len(modules)} modules in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()

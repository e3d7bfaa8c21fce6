"""The table of compiled pipelines."""

from __future__ import annotations

from tests.perf.isa.compiled import Compiled

HEAD = (
    f"{'device':8}{'by':5}{'pipeline':46}{'ms':>5}{'instr':>6}{'regs':>5}{'waves':>6}{'scr':>5}  {'loads':20}"
    f"{'alu':>5}{'cvt':>4}{'dot':>4}{'lds':>4}{'alu/w':>7}{'room':>6}"
)


def line(compiler: str, c: Compiled) -> str:
    """A row of the table."""
    head = f"{c.device:8}{compiler:5}{c.pipeline.name[:45]:46}"
    if c.error:
        return head + " ".join(c.error.split())[:120]
    loads = " ".join(f"{size}x{n}" for size, n in c.loop.loads.items()) or (
        "(by difference)" if c.pipeline.has_loop else "(whole shader)"
    )
    convert, dot, lds = (c.loop.kinds.get(kind, 0) for kind in ("convert", "dot", "lds"))
    per = f"{c.per_product:7.2f}" if c.per_product else " " * 7
    room = f"{c.room:6.0%}" if c.room else ""
    return (
        f"{head}{c.ms:5.0f}{c.instructions:6g}{c.registers:5g}{c.waves:6g}{c.scratch:5g}  {loads:20}"
        f"{c.loop.arithmetic:5}{convert:4}{dot:4}{lds:4}{per}{room}"
    )

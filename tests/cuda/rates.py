"""Predicted rates of an 8B model on GPUs that are not here: `python -m tests.cuda.rates [CARD...]`.

A launch takes the longest of three times, then the cost of a graph's node: its bytes at the memory's
practical bandwidth; the instructions of its hottest loop, counted in machine code, at a share of the issue
rate; its matrix instructions at their peak. The results are in tests/perf/cuda.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from tests.cuda.rig import open_rig
from tests.cuda.static_listing import Code, compiled
from tests.perf.shapes import tensor_type

from camelid.engine.programs import DECODE, MIXED
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.plan.cost import SequenceShare, step_counts, step_of
from camelid.plan.ops import Counts, op_bytes, op_flops
from camelid.plan.plan import Op
from camelid.plan.weights import Part, Weight
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.kernel import Context, Kernel
from camelid_native.cuda.lower import used_kernels
from camelid_native.cuda.types import EXACT_TYPES

PRACTICAL = 0.92  # of the memory's bandwidth: calm's longest kernel reads 955 of 1,008 GB/s on an RTX 4090
# Of the instructions that schedulers can issue. Loops of products by dp4a are integer for the most part, and
# integer units of sm_80 to sm_90 have half of the lanes; those of matrix instructions are float.
ISSUE, ISSUE_FLOAT = 0.5, 0.75
# Attention of prompts: rows of x that share a load of keys and values, and instructions per fused product.
TILE_ROWS, PER_PRODUCT = 8, 7442 / 4096
NODE_S = 1.3e-6  # of a graph's node on an H100 (Hazy Research, 2025)
RAMP_S = 0.6e-6  # first loads of a launch and its last block: a round trip to memory
DOT_WEIGHTS = 4  # of an integer dot product


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU: its architecture; lane instructions, bytes and int8 operations a second."""

    name: str
    arch: str
    lanes: float
    bandwidth: float
    int8: float


# Multiprocessors x lanes x boost clock; the vendors' data sheets.
CARDS = {
    "4090": Card("RTX 4090", "sm_89", 128 * 128 * 2.52e9, 1008e9, 660e12),
    "h100": Card("H100 SXM", "sm_90", 132 * 128 * 1.83e9, 3350e9, 1979e12),
    "h200": Card("H200", "sm_90", 132 * 128 * 1.83e9, 4800e9, 1979e12),
    "mi300x": Card("MI300X", "gfx942", 304 * 64 * 2.1e9, 5300e9, 2615e12),
    "7900xtx": Card("RX 7900 XTX", "gfx1100", 96 * 64 * 2.5e9, 960e9, 123e12),
}


@dataclass(frozen=True, slots=True)
class Time:
    """The seconds of a launch by what bounds it."""

    title: str
    bytes_s: float
    issue_s: float
    matrix_s: float

    @property
    def seconds(self) -> float:
        return max(self.bytes_s, self.issue_s, self.matrix_s) + NODE_S + RAMP_S


def model_of(kind: str) -> Model:
    """An 8B model with the types of a file of `kind`; q4_k_m is a mix."""
    spec = PRESETS["8b"]
    if kind != "q4_k_m":
        return bare_model(spec, kind)
    model = bare_model(spec, "q4_k")
    return replace(model, weights={name: _mixed(w, len(spec.layers)) for name, w in model.weights.items()})


def _mixed(weight: Weight, n_layers: int) -> Weight:
    if weight.type == "f32":
        return weight
    layer = int(weight.name.split(".")[1]) if weight.name.startswith("blk.") else 0
    kind = (
        "q6_k"
        if weight.name == "output"
        else tensor_type("q4_k_m", weight.name, weight.cols, layer, n_layers)
    )
    made = replace(weight, type=kind)
    return replace(made, parts=(Part(made.parts[0].source, 0, made.n_bytes),))


def times(card: Card, kind: str, program: str, rows: int, held: int) -> Iterator[Time]:
    """The launches of a step with `rows` rows: of one sequence's prompt, or of as many sequences."""
    is_prompt = program == MIXED
    options = LoadOptions(kv_type="f16", parallel=1 if is_prompt else rows, chunk=rows, context=8192)
    deployment = Deployment.of(model_of(kind), options, open_rig().capabilities())
    context = Context(deployment.plan(program), deployment.kv_cache().sizes(), has_matrix=True)
    shares = [SequenceShare(held, rows)] if is_prompt else [SequenceShare(held, 1)] * rows
    counts = step_counts(context.plan, step_of(context.plan, shares))
    for op, kernels in used_kernels(context):
        yield from (_time(card, op, kernel, context, counts, kernel is kernels[-1]) for kernel in kernels)


def _time(card: Card, op: Op, kernel: Kernel, context: Context, counts: Counts, is_last: bool) -> Time:
    """An op's bytes count for its last launch."""
    title = f"{op.name} {op.weight('weight').type}" if op.has("weight") else op.name
    n_bytes = op_bytes(op, context.plan, counts) if is_last else 0
    bytes_s = n_bytes / (PRACTICAL * card.bandwidth)
    if kernel.file == "attention_rows":
        issue = PER_PRODUCT * op_flops(op, counts) / 2
        return Time(title, bytes_s / TILE_ROWS, issue / (ISSUE_FLOAT * card.lanes), 0.0)
    if not is_last or not op.has("weight") or op.weight("weight").type in EXACT_TYPES:
        return Time(title, bytes_s, 0.0, 0.0)
    weights = [op.weight(role) for role in ("weight", "v_weight") if op.has(role)]
    rows = context.rows(op, "y")
    module = kernel.module(op, context)
    issue, ops = per_weight(card.arch, module, kernel.function)
    n = sum(weight.rows * weight.cols for weight in weights) * (-(-rows // 64) if ops else 1)
    return Time(
        title, bytes_s, n * issue / ((ISSUE_FLOAT if ops else ISSUE) * card.lanes), n * ops / card.int8
    )


@cache
def per_weight(arch: str, module: Module, name: str) -> tuple[float, float]:
    """Lane instructions and int8 operations per weight of a block's rows of x, in the hottest loop."""
    code: Code = compiled(module, arch)[name]
    kinds = code.loop.kinds
    n, defines = sum(kinds.values()), dict(module.defines)
    if "TOKENS" in defines:
        return n * int(defines["TOKENS"]) / (DOT_WEIGHTS * kinds["dot"]), 0.0
    if "GEMM" not in defines:
        return 0.0, 0.0
    tokens, threads = int(defines["GEMM"]), int(defines["THREADS"])
    weights = threads * 32  # a thread decodes a block of 32 a turn
    return n * threads / weights, 2.0 * tokens


def table(card: Card, kind: str, program: str, rows: int, held: int) -> Iterator[str]:
    """Markdown rows: launches of one kind, their bounds and times, then the step."""
    found = list(times(card, kind, program, rows, held))
    for title in dict.fromkeys(time.title for time in found):
        same = [time for time in found if time.title == title]
        parts = [
            1e6 * sum(getattr(t, name) for t in same)
            for name in ("bytes_s", "issue_s", "matrix_s", "seconds")
        ]
        yield f"| {title} | {len(same)} | {' | '.join(f'{us:.0f}' for us in parts)} |"
    total = sum(time.seconds for time in found)
    read = PRACTICAL * sum(time.bytes_s for time in found)
    multiply = sum(time.matrix_s for time in found)
    yield (
        f"| step of {rows} rows | {len(found)} | {100 * read / total:.0f} % of bandwidth "
        f"| {100 * multiply / total:.0f} % of int8 | {rows / total:,.0f} tok/s | {1e6 * total:.0f} |"
    )


HEAD = (
    "| {name}, {kind}: op | launches | bytes, µs | issue, µs | matrix, µs | with nodes, µs |\n"
    "|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cards", nargs="*", choices=[*CARDS, []], help=f"of {', '.join(CARDS)}; default: all")
    parser.add_argument("--type", default="q4_k_m", help="weight type (default: q4_k_m)")
    parser.add_argument("--rows", type=int, default=1, help="rows of a step (default: 1)")
    parser.add_argument("--held", type=int, default=512, help="rows in the KV cache (default: 512)")
    parser.add_argument("--prompt", action="store_true", help="rows of one prompt, not of one sequence each")
    parser.add_argument("--total", action="store_true", help="the step's line alone")
    args = parser.parse_args()
    for name in args.cards or CARDS:
        lines = list(table(CARDS[name], args.type, MIXED if args.prompt else DECODE, args.rows, args.held))
        print(HEAD.format(name=CARDS[name].name, kind=args.type))
        print("\n".join(lines[-1:] if args.total else lines), flush=True)


if __name__ == "__main__":
    main()

"""Bounds of the compiled kernels: `make isa`, or `python -m tests.perf.isa.gate` for a table of all types.

Compiles the matvec of every weight type, also with 8-bit activations, every pipeline of an 8B shape in
Q4_0, its queries, keys and values in Q4_K and Q6_K, and terms of adapters, for GPUs of four vendors, and
Intel's where its shim is built, by both WGSL compilers, without the drivers' bounds checks. Ends with status
1 beyond a bound.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.perf.isa.compiled import COMPILERS, Compiled, compile_on
from tests.perf.isa.devices import CHOSEN, DEVICES, DRIVERS, present
from tests.perf.isa.pipelines import Pipeline, pipelines_of, with_values
from tests.perf.isa.table import HEAD, line

from camelid.backends.webgpu.layouts import LAYOUTS, PACKED
from camelid.engine.programs import DECODE, MIXED
from camelid.loading.options import LoadOptions
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.model.spec import ExpertsSpec, LayerSpec

MODEL, MODEL_WIDTH = PRESETS["8b"], 4096
OPTIONS = LoadOptions(backend="webgpu", kv_type="f16", parallel=1)
WIDE = 16  # bytes of a load
# Mesa's NVIDIA driver splits Tint's loads into words, even without bounds checks.
ONLY = {"nvidia": ("naga",)}
MAY_SPILL = {"f64", "i64"}  # no model has matrices of these types
# A chunk has at most 8 bytes side by side; x is in workgroup memory, or read in 16 bytes.
NARROW = {"q1_0", "q2_0", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"}
# Most spilled registers of a kernel, twice as many for two halves: for Tint's modules Mesa has 16 lanes per
# thread, and so registers for 64 values.
SPILLS = {("intel", "tint"): (32, 130)}  # of tiles: the second number

# Most arithmetic instructions per weight on AMD's GPUs, by weight type.
ARITHMETIC: dict[str, float] = {
    "q4_0": 2.9, "q4_1": 2.8, "q5_0": 4.1, "q5_1": 4.0, "q8_0": 3.5,
    "q2_k": 3.9, "q3_k": 4.6, "q4_k": 3.9, "q5_k": 4.8, "q6_k": 4.5,
    "iq1_s": 3.6, "iq1_m": 4.5, "iq2_xxs": 4.5, "iq2_xs": 4.8, "iq2_s": 5.0, "iq3_xxs": 4.8, "iq3_s": 5.3,
    "iq4_nl": 2.5, "iq4_xs": 2.6, "mxfp4": 2.6, "nvfp4": 3.3,
    "tq1_0": 9.0, "tq2_0": 3.2, "q1_0": 3.5, "q2_0": 4.2,
    "f32": 1.31, "f16": 1.6, "bf16": 2.3, "i8": 3.4, "i16": 3.3, "i32": 2.4, "f64": 25.0, "i64": 14.0,
}  # fmt: skip
# The same with 8-bit activations, on GPUs with integer dot products.
Q8_ARITHMETIC: dict[str, float] = {
    "q4_0": 1.0, "q4_1": 0.95, "q5_0": 2.1, "q5_1": 2.0, "q8_0": 0.6,
    "q2_k": 2.05, "q3_k": 2.7, "q4_k": 1.95, "q5_k": 2.8, "q6_k": 2.45,
    "iq1_s": 1.6, "iq1_m": 2.5, "iq2_xxs": 2.45, "iq2_xs": 2.8, "iq2_s": 3.0, "iq3_xxs": 2.8, "iq3_s": 3.3,
    "iq4_nl": 1.9, "iq4_xs": 2.1, "mxfp4": 2.15, "nvfp4": 2.8,
    "tq1_0": 4.4, "tq2_0": 1.35, "q1_0": 1.5, "q2_0": 2.2,
}  # fmt: skip
HAVE_DOT = {"amd", "intel", "nvidia"}
# Times as many on other GPUs: NVIDIA, Apple and Adreno need a shift per byte, Intel more for f16.
FACTORS = {"amd": 1.0, "intel": 1.85, "nvidia": 2.3, "apple": 1.8, "adreno": 1.8}


def matvecs() -> list[Pipeline]:
    """The matvec of the square matrices of an 8B shape, one per weight type and rounding of x."""
    return [square(name) for name in LAYOUTS] + [square(name, "q8") for name in LAYOUTS if name in PACKED]


def square(type_name: str, activations: str = "f32") -> Pipeline:
    options = replace(OPTIONS, activations=activations)
    pipelines = pipelines_of(bare_model(MODEL, type_name), options, DECODE)
    sizes = (MODEL_WIDTH, MODEL_WIDTH, 1)
    return next(p for p in pipelines if p.sizes == sizes and "linear_add_norm" in p.files)


def programs() -> list[Pipeline]:
    """Every pipeline of the two programs that generation needs."""
    model = bare_model(MODEL, "q4_0")
    return [pipeline for program in (DECODE, MIXED) for pipeline in pipelines_of(model, OPTIONS, program)]


def mixed() -> list[Pipeline]:
    """Queries, keys and values of two types in one dispatch."""
    model = with_values(bare_model(MODEL, "q4_k"), "q6_k")
    ways = ((DECODE, "f32"), (DECODE, "q8"), (MIXED, "f32"))
    found = (pipelines_of(model, replace(OPTIONS, activations=each), program) for program, each in ways)
    return [pipeline for pipelines in found for pipeline in pipelines if pipeline.has_halves]


def adapters() -> list[Pipeline]:
    """The low-rank terms of an 8B shape with adapters of rank 16, dense and with 8 experts."""
    options = replace(OPTIONS, parallel=8, adapter_rank=16)
    experts = ExpertsSpec(n_experts=8, n_used=2, ffn_size=MODEL.ffn_size)
    specs = (MODEL, replace(MODEL, experts=experts, layers=(LayerSpec(mlp="experts"),) * MODEL.n_layers))
    found = (
        pipelines_of(bare_model(spec, "q4_0"), options, program)
        for spec in specs for program in (DECODE, MIXED)
    )  # fmt: skip
    return [pipeline for pipelines in found for pipeline in pipelines if "low_rank" in pipeline.files]


def faults(c: Compiled, compiler: str) -> Iterator[str]:
    """A line per figure beyond its bound."""
    if c.error:
        yield c.error
        return
    isa = DEVICES[c.device].isa
    most = SPILLS.get((isa, compiler), (0, 0))[c.pipeline.is_tiled] * (1 + c.pipeline.has_halves)
    if c.scratch > most and c.pipeline.weight_type not in MAY_SPILL:
        yield f"{c.scratch:g} bytes of scratch, or spills; expected none"
    if not c.per_product:
        return
    if c.pipeline.is_rounded and isa not in HAVE_DOT:
        return
    bound = (Q8_ARITHMETIC if c.pipeline.is_rounded else ARITHMETIC)[c.pipeline.weight_type] * FACTORS[isa]
    if c.per_product > bound:
        yield f"{c.per_product:.2f} arithmetic instructions per weight, expected at most {bound:.2f}"
    if not c.is_whole and not c.loop.loads.get(WIDE) and c.pipeline.weight_type not in NARROW:
        yield f"no load of {WIDE} bytes"


def compiled(
    drivers: Path, names: Sequence[str], pipelines: Sequence[Pipeline]
) -> Iterator[tuple[str, Compiled]]:
    different = list({pipeline.key: pipeline for pipeline in pipelines}.values())  # drivers cache equal ones
    for name in names:
        for compiler in ONLY.get(DEVICES[name].isa, COMPILERS):
            done = compile_on(drivers, name, different, compiler, is_checked=False)
            yield from ((compiler, one) for one in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--drivers", type=Path, default=DRIVERS)
    parser.add_argument("--quiet", action="store_true", help="rows beyond a bound only")
    args = parser.parse_args()
    drivers = args.drivers.resolve()
    names = [name for name in CHOSEN if name in present(drivers)]
    if not names:
        raise SystemExit(f"no drivers in {drivers}: .ci/gpu-drivers {args.drivers}")
    print(f"without a driver here: {', '.join(sorted(set(CHOSEN) - set(names))) or 'none'}\n{HEAD}")
    n_faults = 0
    for compiler, one in compiled(drivers, names, [*matvecs(), *programs(), *mixed(), *adapters()]):
        found = list(faults(one, compiler))
        n_faults += len(found)
        if found or not args.quiet:
            print(line(compiler, one), *(f"{fault}\n" for fault in found), flush=True)
    sys.exit(f"{n_faults} beyond a bound" if n_faults else 0)


if __name__ == "__main__":
    main()

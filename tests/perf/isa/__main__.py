"""Machine code of a plan's pipelines on GPUs that are not here: `python -m tests.perf.isa 8b --type q4_0`.

Mesa's compilers run without a GPU (`.ci/gpu-drivers build/gpu-drivers`); a C compiler builds a Vulkan layer
that reads their output. AMD's and Intel's code is Linux'; Apple, Adreno and NVIDIA have compilers of their
own, so that their figures here are those of another compiler.

Columns: compile time; instructions; registers; waves; bytes of scratch or spills; of the hot loop its loads
(bytes x number), arithmetic, conversions and dot products; arithmetic per product of a weight and a value;
room, the arithmetic that the device has time for while it reads a weight, relative to that.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.perf.isa.compiled import COMPILERS, CompilationError, Compiled, compile_on
from tests.perf.isa.devices import CHOSEN, DEVICES, DRIVERS, NoDriverError
from tests.perf.isa.pipelines import Pipeline, pipelines_of, with_values
from tests.perf.isa.table import HEAD, line

from camelid.engine.programs import DECODE, ENTRIES
from camelid.loading.model_file import open_model
from camelid.loading.options import ACTIVATIONS, LoadOptions
from camelid.model.arch import Model
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model


def model_of(name: str, type_name: str, values: str) -> Model:
    """A preset with weights of a type, without a file, or the model of a file; `values` is another type."""
    model = bare_model(PRESETS[name], type_name) if name in PRESETS else asyncio.run(open_model(name)).model
    return with_values(model, values) if values else model


def tables(args: argparse.Namespace, pipelines: list[Pipeline]) -> Iterator[tuple[str, Compiled]]:
    """Each pipeline on each device; a device that cannot compile is reported on standard error."""
    for name in args.devices.split(","):
        for compiler in args.compilers.split(","):
            try:
                done = compile_on(args.drivers.resolve(), name, pipelines, compiler, is_checked=args.checked)
                yield from ((compiler, one) for one in done)
            except (NoDriverError, CompilationError) as error:
                print(f"{name}: {error}", file=sys.stderr)


def write_listings(folder: Path, rows: Iterable[tuple[str, Compiled]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (compiler, c) in enumerate(rows):
        name = f"{number:03}-{c.device}-{compiler}-{c.pipeline.name.replace(' ', '-')}.s"
        (folder / name).write_text(c.listing)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="8b", help="8b, 70b, cria or a file")
    parser.add_argument("--type", default="q4_0", help="weight type of a preset")
    parser.add_argument("--values", default="", help="weight type of the values, if another; Q4_K_M has q6_k")
    parser.add_argument("--program", choices=sorted(ENTRIES), default=DECODE)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--activations", choices=ACTIVATIONS, default="f32")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--adapters", type=int, default=0, metavar="RANK", help="the variant with adapters")
    parser.add_argument("--devices", default=",".join(CHOSEN), help=f"of {', '.join(DEVICES)}")
    parser.add_argument("--compilers", default=",".join(COMPILERS))
    parser.add_argument("--only", default="", help="pipelines whose name contains this")
    parser.add_argument("--drivers", type=Path, default=DRIVERS)
    parser.add_argument("--checked", action="store_true", help="with the drivers' own bounds checks")
    parser.add_argument("--listings", type=Path, help="a folder for the machine code")
    args = parser.parse_args()
    options = LoadOptions(
        backend="webgpu", kv_type=args.kv_type, parallel=args.parallel, activations=args.activations,
        adapter_rank=args.adapters,
    )  # fmt: skip
    found = pipelines_of(model_of(args.model, args.type, args.values), options, args.program)
    pipelines = [pipeline for pipeline in found if args.only in pipeline.name]
    print(HEAD)
    rows = list[tuple[str, Compiled]]()
    for compiler, one in tables(args, pipelines):
        print(line(compiler, one), flush=True)
        rows.append((compiler, one))
    if args.listings:
        write_listings(args.listings, rows)


if __name__ == "__main__":
    main()

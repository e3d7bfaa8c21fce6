"""Pipelines compiled to machine code, on one device by one WGSL compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.perf.isa.devices import DEVICES, LAYER, Device, under
from tests.perf.isa.kinds import ISAS, Mix, hot_loop, mix_of
from tests.perf.isa.listings import READERS, apple_listings
from tests.perf.isa.pipelines import Pipeline

from camelid.formats.quants import QUANTS

HERE = Path(__file__).resolve().parent
COMPILERS = ("naga", "tint")
# Names of one statistic in Mesa's drivers.
REGISTERS = ("VGPRs", "GPRs", "Number of GPRs", "Registers used", "Max live registers")
WAVES = ("Subgroups per SIMD", "Threads", "Max warps/SM", "Max Waves Per Core", "Max dispatch width")
SCRATCH = ("Scratch size", "SLM size", "Scratch", "Scratch memory size")
SPILLS = ("Spill count", "Spills", "Spilled VGPRs", "Spilled SGPRs")
INSTRUCTIONS = ("Instructions", "Instruction count", "Instruction Count")


class CompilationError(Exception):
    """A worker ended without an answer per pipeline."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pipeline's machine code.

    `loop` has the instructions of its hot loop. `is_whole` is True where the listing is cut: `loop` then has
    no loads, and the arithmetic by the driver's statistics, of the whole shader, or for a matvec less that of
    the shader without its loop over chunks.
    """

    device: str
    pipeline: Pipeline
    ms: float = 0.0
    stats: Mapping[str, float] | None = None
    loop: Mix = field(default_factory=Mix)
    is_whole: bool = False
    listing: str = ""
    error: str = ""

    def _first(self, names: Sequence[str]) -> float:
        return next((self.stats[name] for name in names if self.stats and name in self.stats), 0.0)

    @property
    def registers(self) -> float:
        return self._first(REGISTERS)

    @property
    def waves(self) -> float:
        return self._first(WAVES)

    @property
    def instructions(self) -> float:
        return self._first(INSTRUCTIONS)

    @property
    def scratch(self) -> float:
        """Bytes of scratch memory, or spilled registers."""
        return self._first(SCRATCH) + sum(self.stats.get(name, 0.0) for name in SPILLS) if self.stats else 0.0

    @property
    def per_product(self) -> float:
        """Arithmetic instructions per product of a weight and a value; 0 for kernels without weights."""
        return self.loop.arithmetic / self.pipeline.products if self.pipeline.products else 0.0

    @property
    def room(self) -> float:
        """Instructions that the device executes while it reads a weight, over `per_product`; 0 if unknown.

        Below 1, arithmetic takes longer than reading. Only for one token row, where weights are read once.
        """
        bits = bits_of(self.pipeline)
        if not bits or not self.per_product or self.pipeline.constants.get("TOKENS", 1) > 1:
            return 0.0
        device = DEVICES[self.device]
        return device.lanes / (8 * device.bandwidth / bits) / self.per_product


def bits_of(pipeline: Pipeline) -> float:
    """Bits per weight of the pipeline's type, 0 without weights."""
    row = QUANTS.get(pipeline.weight_type)
    return 8 * row.block_bytes / row.block if row else 0.0


def compile_on(
    drivers: Path, name: str, pipelines: Sequence[Pipeline], compiler: str, *, is_checked: bool = True
) -> list[Compiled]:
    """Compiles pipelines for a device. Raises NoDriverError, or CompilationError if the worker ends early.

    Without `is_checked` the driver does not check bounds; Mesa's NVIDIA and Apple drivers split wide loads to
    check them word by word, and vendors' drivers do not.
    """
    done = _compile(drivers, name, pipelines, compiler, is_checked)
    cut = [c for c in done if c.is_whole and c.pipeline.has_loop]
    rest = (
        _compile(drivers, name, [c.pipeline.without_loop() for c in cut], compiler, is_checked) if cut else []
    )
    rests = {c.pipeline.key: less for c, less in zip(cut, rest, strict=True)}
    return [_loop_of(c, rests[c.pipeline.key]) if c.pipeline.key in rests else c for c in done]


def _loop_of(c: Compiled, rest: Compiled) -> Compiled:
    return replace(c, loop=Mix({"alu": c.loop.arithmetic - rest.loop.arithmetic}))


def _compile(
    drivers: Path, name: str, pipelines: Sequence[Pipeline], compiler: str, is_checked: bool
) -> list[Compiled]:
    device = DEVICES[name]
    with tempfile.TemporaryDirectory() as folder:
        build_layer(drivers, Path(folder))
        todo, out = Path(folder) / "todo.json", Path(folder) / "records"
        todo.write_text(json.dumps([pipeline.json() for pipeline in pipelines]))
        prefix, environment = under(drivers, device, Path(folder), out)
        environment |= {"ISA_TEXT": "1"} | ({} if is_checked else {"ISA_UNCHECKED": "1"})
        done = subprocess.run(
            [*prefix, *_worker(compiler), str(todo)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(lines) != len(pipelines) + 1:
            raise CompilationError(f"{name}: {done.stdout[-300:]} {done.stderr[-1000:]}")
        records = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        # Equal shaders are printed once; without their loops, those of several types are equal.
        if device.isa == "apple" and not any(pipeline.is_bare for pipeline in pipelines):
            _add_listings(records, apple_listings(done.stdout + done.stderr))
        return [
            _compiled(name, device, p, line, records) for p, line in zip(pipelines, lines[1:], strict=True)
        ]


def build_layer(drivers: Path, folder: Path) -> None:
    """Compiles the Vulkan layer, which writes a record of each pipeline, and its manifest."""
    library = folder / "libisa_layer.so"
    compiler = os.environ.get("CC", "cc").split()
    command = [
        *compiler,
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{drivers}/usr/include",
        "-o",
        str(library),
        str(HERE / "layer.c"),
    ]
    subprocess.run(command, check=True)
    layer = {
        "name": LAYER, "type": "GLOBAL", "library_path": str(library), "api_version": "1.3.250",
        "implementation_version": "1", "description": "records the machine code of compute pipelines",
    }  # fmt: skip
    (folder / "layer.json").write_text(json.dumps({"file_format_version": "1.2.0", "layer": layer}))


def _worker(compiler: str) -> list[str]:
    if compiler == "naga":
        return [sys.executable, str(HERE / "compile_naga.py")]
    return [shutil.which("node") or "node", str(HERE / "compile_tint.mjs")]


def _add_listings(records: Sequence[dict[str, Any]], listings: Sequence[str]) -> None:
    """Apple's driver prints its listings instead of returning them."""
    for record, listing in zip(records, listings, strict=True):
        record["executables"][-1]["texts"] = [["Assembly", listing]]


def _compiled(
    name: str, device: Device, pipeline: Pipeline, line: dict[str, Any], records: Sequence[dict[str, Any]]
) -> Compiled:
    if not line["records"]:
        return Compiled(name, pipeline, error=line.get("error") or "no record")
    record = records[line["first"] + line["records"] - 1]
    executable = record["executables"][-1]
    listing = next((text for title, text in executable["texts"] if "ssembly" in title), "")
    code = READERS[device.isa](listing)
    n = next((executable["stats"][key] for key in INSTRUCTIONS if key in executable["stats"]), 0)
    is_cut = device.isa == "apple" and len(code.ops) < 0.9 * n  # Mesa prints 4 KiB
    isa = ISAS[device.isa]
    is_cut = is_cut or pipeline.is_bare
    loop = Mix({"alu": int(executable["stats"]["ALU"])}) if is_cut else mix_of(isa, hot_loop(isa, code))
    return Compiled(name, pipeline, record["ms"], executable["stats"], loop, is_cut, listing)

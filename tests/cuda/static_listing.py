"""Compilers for GPUs that are not here, and what their machine code says of each kernel.

NVIDIA: NVRTC, and the sizes and listings of `cuobjdump` and `nvdisasm`. AMD: clang's assembly with its
metadata.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tests.perf.isa.kinds import ISAS, Isa, Mix, mix_of
from tests.perf.isa.listings import Code as Listing
from tests.perf.isa.listings import labelled

from camelid.errors import BackendError
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.nvrtc import NVRTC, RuntimeCompiler
from camelid_native.cuda.signature import signatures

TOOLKIT = Path(__file__).parents[2] / "build" / "cuda-tools" / "nvidia" / "cu13"
CLANG = "clang-19"
CLANG_OPTIONS = (
    *("-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"),
    *("-std=c++17", "-O3", "-ffp-contract=off", "-S", "-o", "-", "-"),
)


@dataclass(frozen=True, slots=True)
class Processor:
    """Limits of an NVIDIA multiprocessor: warps, bytes of shared memory, blocks.

    Of a block's shared memory the system reserves `reserved` bytes; `counted` of them are in a kernel's size.
    """

    warps: int
    shared: int
    blocks: int
    reserved: int = 1024
    counted: int = 0


# The technical specifications per compute capability in NVIDIA's CUDA C++ programming guide.
NVIDIA: Mapping[str, Processor] = {
    "sm_75": Processor(32, 64 << 10, 16, reserved=0),
    "sm_80": Processor(64, 164 << 10, 32),
    "sm_86": Processor(48, 100 << 10, 16),
    "sm_89": Processor(48, 100 << 10, 24),
    "sm_90": Processor(64, 228 << 10, 32, counted=1024),
    "sm_100": Processor(64, 228 << 10, 32, counted=1024),
    "sm_120": Processor(48, 100 << 10, 24, counted=1024),
}
REGISTERS, UNIT, PARTS = (
    65536,
    256,
    4,
)  # of a multiprocessor, of an allocation, partitions with their own warps
# Waves of a SIMD. A compute unit has 4 of them before RDNA, then 2.
AMD: Mapping[str, int] = {"gfx906": 10, "gfx90a": 8, "gfx942": 8, "gfx1030": 16, "gfx1100": 16, "gfx1201": 16}
ARCHS = (*NVIDIA, *AMD)


def _sass_width(op: str) -> int:
    found = re.search(r"\.(?:[US](8|16)|(64|128|256))\b", op.split()[0])
    return int(found[1] or found[2]) // 8 if found else 4


SASS = Isa(
    (
        ("scratch", r"(LDL|STL)"),
        ("load", r"LDG"),
        ("store", r"(STG|ATOM|RED)"),
        ("dot", r"IDP"),
        ("mma", r"(IMMA|HMMA|QMMA|OMMA|UTC\w*MMA)"),
        ("fused", r"FFMA"),
    ),
    _sass_width,
)
GCN = replace(
    ISAS["amd"],
    kinds=(
        ("mma", r"v_(mfma|wmma|swmmac)"),
        ("fused", r"v_(pk_|dual_)?(fma|mad|mac)\w*_f"),
        *ISAS["amd"].kinds,
    ),
)


Loops = tuple[str, str]  # patterns of a label, and of a jump to one
SASS_LOOPS: Loops = (r"(\.L_x_\d+):", r"^BRA\b.*\((\.L_x_\d+)\)")
GCN_LOOPS: Loops = (r"(\.LBB\w+):", r"^s_c?branch\S* (\.LBB\w+)")


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel's machine code.

    - `scratch` are bytes of a thread outside its registers: a stack, or spilled registers.
    - `shared` are bytes of a block, `waves` those of a multiprocessor (NVIDIA) or a SIMD (AMD) at a time.
    - `loop` are the instructions of the loop with the largest share of products; without loops, all.
    """

    registers: int
    scratch: int
    shared: int
    waves: int
    most_waves: int
    mix: Mix
    loop: Mix = field(default_factory=Mix)

    @property
    def widest(self) -> int:
        """Bytes of the widest load of global memory."""
        return max(self.mix.loads, default=0)


def missing(arch: str) -> str:
    """Why an architecture's compiler cannot run, or ""."""
    if arch in NVIDIA:
        return "" if (TOOLKIT / "bin" / "nvdisasm").exists() else "no NVRTC: run .ci/setup cuda"
    return "" if shutil.which(CLANG) else f"no {CLANG}: run .ci/setup cuda"


def compiled(module: Module, arch: str) -> Mapping[str, Code]:
    """The code of each kernel of a module. Raises BackendError with the compiler's log."""
    return (_nvidia if arch in NVIDIA else _amd)(module, arch)


@cache
def nvrtc() -> RuntimeCompiler:
    return RuntimeCompiler(NVRTC, str(next((TOOLKIT / "lib").glob(NVRTC.pattern))))


def _nvidia(module: Module, arch: str) -> Mapping[str, Code]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(nvrtc().image(module, arch))
        file.flush()
        sizes = _output(str(TOOLKIT / "bin" / "cuobjdump"), "-res-usage", file.name)
        listing = _output(str(TOOLKIT / "bin" / "nvdisasm"), "-c", "-ndf", file.name)
    found = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", sizes)
    bodies = _bodies(
        listing,
        r"^\s*\.text\.(\w+):$",
        r"^(?:\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?)?(\.L_x_\d+:|[A-Z].*?)\s*;?$",
        SASS_LOOPS,
    )
    codes: dict[str, Code] = {}
    for symbol, *numbers in found:
        registers, stack, shared, local = map(int, numbers)
        shared -= NVIDIA[arch].counted if shared else 0
        mix = mix_of(SASS, bodies[symbol].ops)
        scratch = stack + local or 4 * mix.kinds.get("scratch", 0)
        name = symbol.removeprefix("kernel_")
        waves = warps(NVIDIA[arch], registers, shared, signatures(module.text)[name].threads)
        codes[name] = Code(
            registers, scratch, shared, waves, NVIDIA[arch].warps, mix, _loop(SASS, bodies[symbol])
        )
    return codes


def warps(limits: Processor, registers: int, shared: int, threads: int) -> int:
    """Warps of a multiprocessor at a time, by registers, shared memory and blocks."""
    of_block = -(-threads // 32)
    of_warp = -(-32 * registers // UNIT) * UNIT
    by_registers = REGISTERS // PARTS // of_warp * PARTS
    by_shared = limits.shared // max(shared + limits.reserved, 1)
    return min(limits.blocks, by_shared, min(limits.warps, by_registers) // of_block) * of_block


def _amd(module: Module, arch: str) -> Mapping[str, Code]:
    listing = assembly(module.text, arch)
    bodies = _bodies(listing, r"^kernel_(\w+):", r"^\t?(\.LBB\w+:|[a-z]+_[^;\n]*)", GCN_LOOPS)
    waves = re.findall(r"\.amdhsa_kernel kernel_(\w+)$(?:.|\n)*?^; Occupancy: (\d+)", listing, re.MULTILINE)
    codes: dict[str, Code] = {}
    for name, n_waves in waves:
        facts = _metadata(listing, name)
        codes[name] = Code(
            facts["vgpr_count"],
            facts["private_segment_fixed_size"],
            facts["group_segment_fixed_size"],
            int(n_waves),
            AMD[arch],
            mix_of(GCN, bodies[name].ops),
            _loop(GCN, bodies[name]),
        )
    return codes


def assembly(text: str, arch: str) -> str:
    """clang's assembly for an AMD architecture."""
    return _output(CLANG, f"--offload-arch={arch}", *CLANG_OPTIONS, given=text)


def _metadata(listing: str, name: str) -> Mapping[str, int]:
    """The numbers of a kernel in the metadata at the end of an assembly."""
    entries = listing.split("amdhsa.kernels:")[1].split("  - .a")[1:]
    entry = next(one for one in entries if re.search(rf"\.name: +kernel_{name}$", one, re.MULTILINE))
    return {key: int(value) for key, value in re.findall(r"^    \.(\w+): +(\d+)$", entry, re.MULTILINE)}


def _bodies(listing: str, start: str, line_of: str, loops: Loops) -> Mapping[str, Listing]:
    """Instructions and loops by the symbol before them."""
    bodies: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listing.splitlines():
        if symbol := re.match(start, line):
            current = bodies.setdefault(symbol[1], [])
        elif found := re.match(line_of, line):
            current.append(found[1])
    return {name: labelled("\n".join(lines), label=loops[0], jump=loops[1]) for name, lines in bodies.items()}


def _loop(isa: Isa, code: Listing) -> Mix:
    """The loop with the largest share of products, also of a jump back from cold code behind a kernel."""

    def share(body: Sequence[str]) -> float:
        kinds = mix_of(isa, body).kinds
        return (kinds.get("mma", 0) or kinds.get("dot", 0)) / len(body)

    return mix_of(isa, max(code.loops, key=share, default=code.ops))


def _output(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        raise BackendError(f"{Path(command[0]).name} failed:\n{done.stderr[-4000:]}", backend="cuda")
    return done.stdout

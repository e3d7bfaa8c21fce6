"""The rig: the kernels' text as C++ for the processor, behind a stand-in of the driver's library.

`open_rig()` is the backend over it, on the architecture that EMU_ARCH names, sm_90 without it. Libraries are
built once per text and kept in build/cuda.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from camelid.backends.base import Shares
from camelid_native.cuda import dlpack
from camelid_native.cuda.backend import CudaBackend, Sizes
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.device_driver import CUDA, HIP, DriverDevice
from camelid_native.cuda.parallel import CudaParallel

HERE = Path(__file__).parent / "emu"
BUILD = Path(__file__).parents[2] / "build" / "cuda"
SANITIZERS: Mapping[str, tuple[str, ...]] = {
    "": ("-O1",),
    "thread": ("-O1", "-g", "-fsanitize=thread"),
    "address": ("-O1", "-g", "-fsanitize=address"),
}
FLAGS = ("-std=c++17", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-w")
PROCESSOR = ("-march=x86-64-v3",) if os.uname().machine == "x86_64" else ()
SMALL = Sizes(chunk=64, row_buckets=())
NAMES = re.compile(r"^KERNEL\((\w+),", re.MULTILINE)
ROWS = """
static const emu::Row emu_all[] = {{{rows}}};
extern "C" const emu::Row *emu_rows(int *n) {{ return *n = {n}, emu_all; }}
"""


def sanitizer() -> str:
    """The sanitizer of this run: EMU_SANITIZER, "", thread or address."""
    return os.environ.get("EMU_SANITIZER", "")


def built(text: str, suffix: str, *options: str) -> Path:
    """The shared library of a C++ text, compiled once."""
    flags = (*FLAGS, *PROCESSOR, *SANITIZERS[sanitizer()], *options)
    parts = [text, *flags, *(path.read_text() for path in sorted(HERE.iterdir()))]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    target = BUILD / f"{suffix}-{name}.so"
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        source = BUILD / f"{suffix}-{name}-{os.getpid()}.cpp"
        source.write_text(text)
        part = source.with_suffix(".part")
        command = ["g++", *flags, f"-I{HERE}", str(source), "-o", str(part)]
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{suffix} does not compile:\n{done.stderr}")
        part.replace(target)
        source.unlink()
    return target


def driver_library() -> Path:
    """The stand-in of libcuda.so.1."""
    return built((HERE / "stand_in.cpp").read_text(), "driver")


def live() -> int:
    """Memory, graphs, streams and events of the driver's stand-in that are not freed."""
    return ctypes.CDLL(str(driver_library())).emu_live()


class RigCompiler:
    """Compiles modules by g++; an image is the library's path."""

    name = "g++"

    def image(self, module: Module, arch: str) -> bytes:
        names = NAMES.findall(module.text)
        rows = ", ".join(f'emu::Kernel<kernel_{name}>::row("kernel_{name}")' for name in names)
        macros = "#define GPU_EMULATED 1\n" + f"#define __{arch}__ 1\n" * arch.startswith("gfx")
        text = f"{macros}{module.text}{ROWS.format(rows=rows, n=len(names))}"
        return str(built(text, module.file)).encode() + b"\0"


def open_device(number: int = 0) -> DriverDevice:
    """The emulator as a device."""
    library = str(driver_library())
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)  # modules use its symbols
    api = HIP if os.environ.get("EMU_ARCH", "").startswith("gfx") else CUDA
    return DriverDevice(replace(api, dlpack=dlpack.CPU), library, number)


def open_rig(n_devices: int = 1, sizes: Sizes = SMALL) -> CudaBackend:
    """The backend on the emulator, whose steps are small: each row bucket has kernels to compile."""
    return CudaBackend(lambda number: (open_device(number), RigCompiler()), n_devices, sizes)


def open_rigs(n: int, shares: Shares) -> CudaParallel:
    """A tensor-parallel backend of n simulated devices."""
    return CudaParallel([open_rig(n) for _ in range(n)], shares)


if __name__ == "__main__":
    sys.exit(print(driver_library()))

"""Table of the platforms the CPU kernels are built for: library name, compiler and linker flags.

This file imports the standard library only: the build hook reads it before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "cpu" / "c"
LIB = Path(__file__).resolve().parents[1] / "lib"  # one folder per target: the library and its build.json
# Value of --sanitize -> folder of the libraries.
SANITIZED = {"memory": LIB / "sanitized", "threads": LIB / "sanitized-threads"}
FACTS = "build.json"
FLAGS = (
    *("-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"),
    # Identical bits from every compiler: no contraction of a product and a sum into an FMA.
    *("-ffp-contract=off", "-fno-math-errno"),
)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
# Architecture -> variant of the kernels -> compiler flags.
VARIANTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": {
        "portable": (),
        "avx2": AVX2,
        "avxvnni": (*AVX2, "-mavxvnni"),
        "avx512vnni": (*AVX512, *AVX2),
        "avx512bf16": (*AVX512, "-mavx512bf16", *AVX2),
    },
    "aarch64": {
        "portable": (),
        "neon_dot": ("-march=armv8.2-a+dotprod+fp16",),
        "neon_i8mm": ("-march=armv8.6-a+i8mm+dotprod+fp16",),
    },
    # One module per feature set: WASM has no feature detection, and an unknown instruction invalidates the
    # whole module.
    "simd": {"wasm": ("-msimd128",)},
    "relaxed": {"wasm_relaxed": ("-msimd128", "-mrelaxed-simd")},
}
OTHER_MACHINE: Mapping[str, tuple[str, ...]] = {"portable": ()}
# Zig selects instruction sets by -mcpu with features, not by -march.
ZIG_FLAGS = {
    "neon_dot": ("-mcpu=generic+dotprod+fullfp16",),
    "neon_i8mm": ("-mcpu=generic+dotprod+fullfp16+i8mm",),
}


@dataclass(frozen=True, kw_only=True)
class System:
    """Build facts of one operating system; {} in a string stands for the architecture."""

    library: str  # file name
    flags: tuple[str, ...] = ("-fPIC",)
    link: tuple[str, ...]
    zig: str  # Zig's target triple
    wheel: str  # the platform tag of a wheel
    compilers: tuple[str, ...] = ("cc", "gcc", "clang")
    baseline: tuple[str, ...] = ("api.c", "pool.c", "cpuid.c")  # compiled once, not per variant
    also: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further libraries of the same objects: (name, link)

    @property
    def links(self) -> Mapping[str, tuple[str, ...]]:
        """File name -> linker flags of each library; the first is `library`."""
        return {self.library: self.link, **dict(self.also)}


LINK_ELF = ("-shared", "-pthread", "-Wl,-z,defs")
LINK_WASM = ("-nostdlib", "-Wl,--no-entry", "-Wl,--export-dynamic", "-Wl,--export=__heap_base")
# One instance per thread, each with its own stack, over a shared memory that the host creates. Maximum size:
# the 32-bit address space less one WASM page of 64 KiB.
LINK_WASM_THREADS = (
    *("-mcpu=generic+atomics+bulk_memory", *LINK_WASM, "-Wl,--export=__stack_pointer"),
    *("-Wl,--import-memory", "-Wl,--shared-memory", "-Wl,--max-memory=4294901760"),
)
SYSTEMS = {
    "linux": System(
        library="libcamelid_cpu.so",
        link=LINK_ELF,
        zig="{}-linux-gnu.2.17",  # glibc of 2012, the oldest that manylinux2014 supports
        wheel="manylinux_2_17_{0}.manylinux2014_{0}",
    ),
    "musl": System(library="libcamelid_cpu.so", link=LINK_ELF, zig="{}-linux-musl", wheel="musllinux_1_1_{}"),
    "macos": System(
        library="libcamelid_cpu.dylib",
        flags=("-fPIC", "-mmacosx-version-min=11.0"),
        # Without an install name, the library's id is the path of the linker's output.
        link=("-dynamiclib", "-pthread", "-Wl,-install_name,@rpath/libcamelid_cpu.dylib"),
        zig="{}-macos.11.0",
        wheel="macosx_11_0_{}",
    ),
    "windows": System(
        library="camelid_cpu.dll",
        flags=(),
        link=("-shared", "-pthread"),
        zig="{}-windows-gnu",
        wheel="win_{}",
        compilers=(),  # Zig only: GCC's output needs GCC's own DLLs, and MSVC is no C11 compiler
    ),
    "wasm": System(
        library="camelid_cpu.wasm",
        flags=("-Ifreestanding", "-matomics", "-mbulk-memory"),
        link=LINK_WASM,
        zig="wasm32-freestanding",
        wheel="any",
        compilers=(),
        baseline=("api.c", "pool_wasm.c", "cpuid.c"),
        also=(("camelid_cpu_threads.wasm", LINK_WASM_THREADS),),
    ),
}
WHEEL_ARCHS = {"macos-aarch64": "arm64", "windows-x86_64": "amd64"}
# Targets of a release.
RELEASED = (
    *("linux-x86_64", "linux-aarch64", "musl-x86_64", "musl-aarch64", "macos-x86_64", "macos-aarch64"),
    *("windows-x86_64", "wasm-simd", "wasm-relaxed"),
)


@dataclass(frozen=True)
class Target:
    """A platform, named by system and architecture: `linux-x86_64`."""

    name: str

    @property
    def arch(self) -> str:
        return self.name.partition("-")[2]

    @property
    def system(self) -> System:
        return SYSTEMS[self.name.partition("-")[0]]

    @property
    def variants(self) -> Mapping[str, tuple[str, ...]]:
        return VARIANTS.get(self.arch, OTHER_MACHINE)

    @property
    def path(self) -> str:
        """Path of the library in a folder of libraries."""
        return f"{self.name}/{self.system.library}"


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """Content of the build.json beside a library."""

    target: str
    sources: str  # digest() of the sources and flags
    compiler: str
    is_zig: bool
    flags: list[str]
    variants: dict[str, list[str]]  # variant -> its flags
    left_out: dict[str, str]  # unsupported variant -> the compiler's error

    def is_of(self, sources: str, flags: list[str], variants: Iterable[str], *, by_zig: bool) -> bool:
        """True if the library matches these sources, flags and variants, so that no build is needed."""
        same = (self.sources, self.flags) == (sources, flags) and self.is_zig >= by_zig
        return same and {*self.variants, *self.left_out} == {*variants}


def this_target() -> Target:
    """Platform whose libraries this Python process can load."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    linux = "linux" if platform.libc_ver()[0] == "glibc" else "musl"
    systems = {"Darwin": "macos", "Windows": "windows", "Linux": linux}
    return Target(f"{systems.get(platform.system(), 'linux')}-{arch}")


def digest(target: Target, folder: Path = SOURCES) -> str:
    """SHA-256 of the target's flags and of all sources and headers."""
    made_of = hashlib.sha256(repr((FLAGS, target.system, dict(target.variants))).encode())
    for path in sorted(path for path in folder.rglob("*") if path.suffix in {".c", ".h"}):
        text = path.read_bytes()
        made_of.update(f"\n{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return made_of.hexdigest()


def read_facts(library: Traversable, folder: Traversable) -> BuildRecord | None:
    """Build record of a library; None if the library or a readable build.json is missing."""
    try:
        return (
            BuildRecord(**json.loads((folder / FACTS).read_text(encoding="utf-8")))
            if library.is_file()
            else None
        )
    except (OSError, ValueError, TypeError):
        return None

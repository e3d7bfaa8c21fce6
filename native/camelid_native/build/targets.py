"""The platforms that the CPU kernels are built for, as rows: what a library is called and made with there.

Standard library only, as the build hook reads this file before anything is installed.
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
LIB = (
    Path(__file__).resolve().parents[1] / "lib"
)  # a folder for each target, with the library and its build.json
# What a library is built to watch -> where it goes.
SANITIZED = {"memory": LIB / "sanitized", "threads": LIB / "sanitized-threads"}
FACTS = "build.json"
FLAGS = (
    *("-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"),
    # The same bits from every compiler: no products fused into sums that the source does not fuse.
    *("-ffp-contract=off", "-fno-math-errno"),
)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
# Architecture -> variant of the kernels -> what its compile is given.
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
    # A page cannot ask its engine what it has, and an instruction that it lacks spoils the whole module.
    "simd": {"wasm": ("-msimd128",)},
    "relaxed": {"wasm_relaxed": ("-msimd128", "-mrelaxed-simd")},
}
OTHER_MACHINE: Mapping[str, tuple[str, ...]] = {"portable": ()}
# Zig takes a processor with features for what others call an architecture's version.
ZIG_FLAGS = {
    "neon_dot": ("-mcpu=generic+dotprod+fullfp16",),
    "neon_i8mm": ("-mcpu=generic+dotprod+fullfp16+i8mm",),
}


@dataclass(frozen=True, kw_only=True)
class System:
    """What the library is on one operating system; {} stands for the architecture."""

    library: str  # file name
    flags: tuple[str, ...] = ("-fPIC",)
    link: tuple[str, ...]
    zig: str  # Zig's name of it
    wheel: str  # the platform in a wheel's name
    compilers: tuple[str, ...] = ("cc", "gcc", "clang")
    baseline: tuple[str, ...] = ("api.c", "pool.c", "cpuid.c")  # compiled once, beside the variants
    also: tuple[tuple[str, tuple[str, ...]], ...] = ()  # libraries more, of the same objects: name, link

    @property
    def links(self) -> Mapping[str, tuple[str, ...]]:
        """Each library's name, the first that of `library`, with what its link is given."""
        return {self.library: self.link, **dict(self.also)}


LINK_ELF = ("-shared", "-pthread", "-Wl,-z,defs")
LINK_WASM = ("-nostdlib", "-Wl,--no-entry", "-Wl,--export-dynamic", "-Wl,--export=__heap_base")
# An instance for each thread, with a stack of its own, over one memory that the host makes: at most all that
# 32 bits address but a page.
LINK_WASM_THREADS = (
    *("-mcpu=generic+atomics+bulk_memory", *LINK_WASM, "-Wl,--export=__stack_pointer"),
    *("-Wl,--import-memory", "-Wl,--shared-memory", "-Wl,--max-memory=4294901760"),
)
SYSTEMS = {
    "linux": System(
        library="libcamelid_cpu.so",
        link=LINK_ELF,
        zig="{}-linux-gnu.2.17",  # of 2012; what manylinux2014 allows
        wheel="manylinux_2_17_{0}.manylinux2014_{0}",
    ),
    "musl": System(library="libcamelid_cpu.so", link=LINK_ELF, zig="{}-linux-musl", wheel="musllinux_1_1_{}"),
    "macos": System(
        library="libcamelid_cpu.dylib",
        flags=("-fPIC", "-mmacosx-version-min=11.0"),
        # Else the library is called by the place where it was linked.
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
        compilers=(),  # Zig's: GCC would link files of its own that must come along, Microsoft's is no C11
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
# What a release carries.
RELEASED = (
    *("linux-x86_64", "linux-aarch64", "musl-x86_64", "musl-aarch64", "macos-x86_64", "macos-aarch64"),
    *("windows-x86_64", "wasm-simd", "wasm-relaxed"),
)


@dataclass(frozen=True)
class Target:
    """A platform by its name, `linux-x86_64`: system and architecture."""

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
        """Where the library is in a folder of libraries."""
        return f"{self.name}/{self.system.library}"


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """What build.json says of the library beside it."""

    target: str
    sources: str  # digest() of what it was made of
    compiler: str
    is_zig: bool
    flags: list[str]
    variants: dict[str, list[str]]  # with the flags of each
    left_out: dict[str, str]  # variants that the compiler does not know, and what it said

    def is_of(self, sources: str, flags: list[str], variants: Iterable[str], *, by_zig: bool) -> bool:
        """Whether a build of this would make the library anew as it is."""
        same = (self.sources, self.flags) == (sources, flags) and self.is_zig >= by_zig
        return same and {*self.variants, *self.left_out} == {*variants}


def this_target() -> Target:
    """The platform whose libraries this Python can load."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    linux = "linux" if platform.libc_ver()[0] == "glibc" else "musl"
    systems = {"Darwin": "macos", "Windows": "windows", "Linux": linux}
    return Target(f"{systems.get(platform.system(), 'linux')}-{arch}")


def digest(target: Target, folder: Path = SOURCES) -> str:
    """Names what a library is made of: the text of the sources, and what their compiles are given."""
    made_of = hashlib.sha256(repr((FLAGS, target.system, dict(target.variants))).encode())
    for path in sorted(path for path in folder.rglob("*") if path.suffix in {".c", ".h"}):
        text = path.read_bytes()
        made_of.update(f"\n{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return made_of.hexdigest()


def read_facts(library: Traversable, folder: Traversable) -> BuildRecord | None:
    """What is known of a library of that folder; None where there is none, or nothing that can be read."""
    try:
        return (
            BuildRecord(**json.loads((folder / FACTS).read_text(encoding="utf-8")))
            if library.is_file()
            else None
        )
    except (OSError, ValueError, TypeError):
        return None

"""Compiles the CPU kernels into one shared library a platform: `python -m camelid_native.build`.

Standard library only, as the build hook runs this file before anything is installed. The library goes to
`lib/<target>/` beside this file, or below --out, with a `build.json` that says what it was made of and
how. A library that is as new as its sources is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "cpu"
LIB = HERE / "lib"
JOBS = 2  # compiles side by side; kernels.c takes memory, and machines that build are small
FLAGS = (
    *("-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    # The same bits from every compiler: no products fused into sums that the source does not fuse.
    *("-ffp-contract=off", "-fno-math-errno"),
)
SANITIZE = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
# Architecture -> variant of the kernels -> what its compile is given. The last is the fastest.
VARIANTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": {
        "portable": (),
        "avx2": AVX2,
        "avxvnni": (*AVX2, "-mavxvnni"),
        "avx512vnni": (*AVX512, *AVX2),
    },
    "aarch64": {
        "portable": (),
        "neon_dot": ("-march=armv8.2-a+dotprod+fp16",),
        "neon_i8mm": ("-march=armv8.6-a+i8mm+dotprod+fp16",),
    },
    # A web page's engine has no way to ask what it has: one module each, and the page tries.
    "simd": {"wasm": ("-msimd128",)},
    "relaxed": {"wasm_relaxed": ("-msimd128", "-mrelaxed-simd")},
}
OTHER_MACHINE = {"portable": ()}
# Zig takes a processor with features for what others call an architecture's version.
ZIG_FLAGS = {
    "neon_dot": ("-mcpu=generic+dotprod+fullfp16",),
    "neon_i8mm": ("-mcpu=generic+dotprod+fullfp16+i8mm",),
}


@dataclass(frozen=True)
class System:
    """What a library is on one operating system."""

    library: str  # file name
    link: tuple[str, ...]
    zig: str  # Zig's name for it, of an architecture
    wheel: str  # the wheel's platform for what Zig built
    compilers: tuple[str, ...] = ("cc", "gcc", "clang")
    baseline: tuple[str, ...] = ("api.c", "pool.c", "cpuid.c")  # compiled once, beside the variants


ELF = ("-shared", "-pthread", "-Wl,-z,defs")
SYSTEMS = {
    "linux": System(
        "libcamelid_cpu.so", ELF, "{}-linux-gnu.2.17", "manylinux_2_17_{0}.manylinux2014_{0}"
    ),  # glibc of 2012
    "musl": System("libcamelid_cpu.so", ELF, "{}-linux-musl", "musllinux_1_1_{}"),
    "macos": System("libcamelid_cpu.dylib", ("-dynamiclib", "-pthread"), "{}-macos.11.0", "macosx_11_0_{}"),
    "windows": System("camelid_cpu.dll", ("-shared", "-static"), "{}-windows-gnu", "win_{}", ("gcc",)),
    "wasm": System(
        "camelid_cpu.wasm",
        ("-nostdlib", "-Wl,--no-entry", "-Wl,--export-dynamic"),
        "wasm32-freestanding",
        "any",
        (),
        ("api.c",),
    ),
}
# What a release carries.
RELEASED = (
    *("linux-x86_64", "linux-aarch64", "musl-x86_64", "musl-aarch64", "macos-x86_64", "macos-aarch64"),
    *("windows-x86_64", "wasm-simd", "wasm-relaxed"),
)
NO_COMPILER = (
    "no C compiler for {}: install one (Debian: gcc libc6-dev; macOS: xcode-select --install), or "
    "`pip install ziglang`, then run `python -m camelid_native.build`"
)


class BuildError(Exception):
    """A library cannot be built; says why and the way out."""


class NoCompilerError(BuildError):
    """Nothing here compiles C for the target."""


@dataclass(frozen=True)
class Target:
    """A platform: `linux-x86_64`."""

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


@dataclass(frozen=True)
class Compiler:
    """A command that compiles for one target."""

    command: tuple[str, ...]
    version: str
    is_zig: bool = False


@dataclass(frozen=True)
class Built:
    """A library, and what its build.json says."""

    library: Path
    facts: Mapping[str, object]
    is_new: bool


def this_target() -> str:
    """The target that this Python can load libraries of."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    linux = "linux" if platform.libc_ver()[0] == "glibc" else "musl"
    system = {"Darwin": "macos", "Windows": "windows", "Linux": linux}.get(platform.system(), "linux")
    return f"{system}-{arch}"


def find_target(name: str) -> Target:
    """The target of that name: one that is released, or this machine's."""
    known = sorted({*RELEASED, this_target()})
    if name not in known:
        raise BuildError(f"unknown target {name!r}; known: {', '.join(known)}")
    return Target(name)


def sources(folder: Path = SOURCES) -> list[Path]:
    """Every file that the library is made of."""
    return sorted(path for path in folder.rglob("*") if path.suffix in {".c", ".h"})


def digest(target: Target, folder: Path = SOURCES) -> str:
    """Names what the library is made of: text of the sources, and what compiles are given."""
    made_of = hashlib.sha256(repr((FLAGS, target.system, dict(target.variants))).encode())
    for path in sources(folder):
        text = path.read_bytes()
        made_of.update(f"\n{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return made_of.hexdigest()


def run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a compiler, with text as its standard input."""
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace")


def zig_program() -> str | None:
    """Zig of the `ziglang` package, or on PATH."""
    spec = importlib.util.find_spec("ziglang")
    name = "zig.exe" if os.name == "nt" else "zig"
    packaged = Path(spec.origin).parent / name if spec and spec.origin else None
    return str(packaged) if packaged and packaged.exists() else shutil.which("zig")


def links(command: tuple[str, ...], target: Target) -> bool:
    """Whether a command is a compiler with headers and linker; a bare `cc` may be a stub."""
    probe = "#include <stdint.h>\n#include <pthread.h>\nint32_t probe(void) { return 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder, target.system.library))
        return run((*command, "-x", "c", "-", "-fPIC", *target.system.link, "-o", out), probe).returncode == 0


def system_compilers(target: Target) -> Iterator[Compiler]:
    """The machine's own compilers that work; $CC is the only candidate where it is set."""
    if target.name != this_target():
        return
    named = os.environ.get("CC", "")
    for words in [shlex.split(named)] if named else [[name] for name in target.system.compilers]:
        command = tuple(words)
        if shutil.which(command[0]) and links(command, target):
            yield Compiler(command, run((*command, "--version")).stdout.partition("\n")[0])


def zig_compilers(target: Target) -> Iterator[Compiler]:
    """Zig, which compiles for every target that is released."""
    program = zig_program()
    if program and target.name in RELEASED:
        triple = target.system.zig.format(target.arch)
        version = run((program, "version")).stdout.strip()
        yield Compiler((program, "cc", "-target", triple), f"zig {version}", is_zig=True)


def find_compiler(target: Target) -> Compiler:
    """The first compiler that works: the system's, else Zig."""
    for candidates in (system_compilers, zig_compilers):
        for compiler in candidates(target):
            return compiler
    raise NoCompilerError(NO_COMPILER.format(target.name))


def variant_flags(compiler: Compiler, name: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    """What this compiler is given for a variant."""
    return ZIG_FLAGS.get(name, flags) if compiler.is_zig else flags


def refusal(compiler: Compiler, flags: tuple[str, ...]) -> str:
    """Why a compiler does not know a variant's flags; empty if it does."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(
            (*compiler.command, *flags, "-x", "c", "-c", "-", "-o", str(Path(folder, "a.o"))), "int a;\n"
        )
    return (done.stderr.strip() or "unknown flags").partition("\n")[0] if done.returncode else ""


def objects(variants: Mapping[str, tuple[str, ...]], baseline: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """(name of the object, source, flags...) of every compile."""
    has = tuple(f"-DCAM_HAS_{name.upper()}" for name in variants)
    for source in baseline:
        yield (source.removesuffix(".c"), source, *has)
    for name, flags in variants.items():
        yield (f"kernels_{name}", "kernels.c", f"-DCAM_ISA_{name.upper()}", f"-DCAM_VARIANT={name}", *flags)


def run_or_fail(command: Sequence[str], what: str) -> None:
    """Runs a compile; its complaint is the error's text, its warnings go to stderr."""
    done = run(command)
    if done.returncode:
        raise BuildError(f"{what} failed:\n{shlex.join(command)}\n{done.stderr.strip()}")
    sys.stderr.write(done.stderr)


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file beside its place, then renames it, so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
        new = Path(folder, path.name)
        write(new)
        new.replace(path)


def compile_library(
    compiler: Compiler,
    target: Target,
    variants: Mapping[str, tuple[str, ...]],
    flags: tuple[str, ...],
    to: Path,
) -> None:
    """Compiles what a target is made of and links it into the file `to`."""
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(job: tuple[str, ...]) -> str:
            name, source, *own = job
            made = str(Path(folder, f"{name}.o"))
            given = (*compiler.command, *flags, *own, "-c", str(SOURCES / source), "-o", made)
            run_or_fail(given, f"{target.name}: {name}")
            return made

        with ThreadPoolExecutor(JOBS) as pool:
            made = list(pool.map(compile_one, objects(variants, target.system.baseline)))
        strip = ("-s",) if compiler.is_zig else ()  # the system's linker may not know it
        out = Path(folder, target.system.library)  # some linkers leave files beside their output
        command = (*compiler.command, *flags, *made, *target.system.link, *strip, "-o", str(out))
        run_or_fail(command, f"{target.name}: linking")
        replace(to, lambda new: shutil.copyfile(out, new))


def read_facts(library: Path) -> dict[str, object]:
    """What build.json says of the library beside it; empty where there is none that can be read."""
    try:
        facts = json.loads((library.parent / "build.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def build(
    target: Target, out: Path = LIB, *, sanitize: bool = False, werror: bool = False, only: Sequence[str] = ()
) -> Built:
    """Builds the target's library below `out`, unless it stands there already, made of the same.

    `only` names the variants to build, for a quick compile. BuildError if it does not compile,
    NoCompilerError if nothing here could try.
    """
    library = out / target.name / target.system.library
    facts = read_facts(library)
    flags = (*FLAGS, *(SANITIZE if sanitize else ()), *(("-Werror",) if werror else ()))
    wanted = {name: own for name, own in target.variants.items() if not only or name in only}
    want = {"sources": digest(target), "flags": [*flags], "wanted": [*wanted]}
    if library.exists() and facts | want == facts:
        return Built(library, facts, is_new=False)
    compiler = find_compiler(target)
    given = {name: variant_flags(compiler, name, own) for name, own in wanted.items()}
    left_out = {name: why for name, own in given.items() if (why := refusal(compiler, own))}
    variants = {name: own for name, own in given.items() if name not in left_out}
    compile_library(compiler, target, variants, flags, library)
    facts = {**want, "target": target.name, "compiler": compiler.version, "variants": variants}
    facts |= {"is_zig": compiler.is_zig, "left_out": left_out}
    text = json.dumps(facts, indent=1)
    replace(library.parent / "build.json", lambda new: new.write_text(text + "\n", encoding="utf-8"))
    return Built(library, facts, is_new=True)


def report(built: Built) -> str:
    """One line on a library, and one for each variant that it lacks."""
    facts = built.facts
    state = "built" if built.is_new else "is up to date, built"
    names = cast("dict[str, object]", facts["variants"])
    left_out = cast("dict[str, str]", facts["left_out"])
    size = built.library.stat().st_size / 1e6
    lines = [f"{built.library}: {state} by {facts['compiler']}; {', '.join(names)}; {size:.2f} MB"]
    lines += [f"left out {name}: {why}" for name, why in left_out.items()]
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m camelid_native.build", description="Builds the CPU kernels."
    )
    parser.add_argument(
        "--target", action="append", metavar="T", help=f"this machine's, or: {', '.join(RELEASED)}"
    )
    parser.add_argument("--all", action="store_true", help="every target that a release carries")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="instead of the package's lib/")
    parser.add_argument(
        "--sanitize", action="store_true", help="with AddressSanitizer and UBSan (lib/sanitized)"
    )
    parser.add_argument("--werror", action="store_true", help="a warning is an error")
    parser.add_argument("--variant", action="append", default=[], metavar="V", help="only this variant")
    parser.add_argument("--optional", action="store_true", help="exit code 0 where there is no compiler")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a target failed; 2: there is no such target."""
    options = parse(arguments)
    names = RELEASED if options.all else options.target or [this_target()]
    out = options.out or (LIB / "sanitized" if options.sanitize else LIB)
    failed = 0
    for name in names:
        try:
            built = build(
                find_target(name), out, sanitize=options.sanitize, werror=options.werror, only=options.variant
            )
            print(report(built))
        except BuildError as error:
            print(f"camelid: {error}", file=sys.stderr)
            failed += not (options.optional and isinstance(error, NoCompilerError))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())

"""Compiles the CPU kernels into one shared library per target: `python -m camelid_native.build`.

This file imports the standard library only: the build hook runs it before anything is installed. The library
is written to `lib/<target>/` in the package, or below --out, with a `build.json` that records its sources,
compiler and flags. A library whose build.json matches the sources and flags is not compiled again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Semaphore

from camelid_native.build.targets import (
    FACTS,
    FLAGS,
    LIB,
    RELEASED,
    SANITIZED,
    SOURCES,
    ZIG_FLAGS,
    BuildRecord,
    Target,
    digest,
    read_facts,
    this_target,
)

JOBS = 2  # compiles in parallel: one compile of kernels.c uses a core and a few hundred megabytes
TURNS = Semaphore(JOBS)  # shared by all targets
TRACED = ("-g", "-fno-omit-frame-pointer")
# Value of --sanitize -> compiler flags.
SANITIZE: Mapping[str, tuple[str, ...]] = {
    # -O0: a third of the compile time, and no faulty access is optimised away before it is checked.
    "memory": ("-O0", *TRACED, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-O1", *TRACED, "-fsanitize=thread"),
}
WAY_OUT = (
    "install a C compiler (Debian: gcc and libc6-dev; macOS: xcode-select --install), or "
    "pip install ziglang, then run `python -m camelid_native.build`"
)
NO_NATIVE = "CAMELID_NO_NATIVE"  # 1: install without the CPU backend
Variants = Mapping[str, tuple[str, ...]]


class BuildError(Exception):
    """A library cannot be built; the text states the cause and the way out."""


class NoCompilerError(BuildError):
    """No installed compiler builds for the target."""


@dataclass(frozen=True)
class Compiler:
    """Compiler command for one target."""

    command: tuple[str, ...]
    version: str
    is_zig: bool = False


@dataclass(frozen=True)
class Built:
    """A library with its build record; `is_new` if this build compiled it."""

    library: Path
    facts: BuildRecord
    is_new: bool

    @property
    def files(self) -> list[Path]:
        """Files of the target: the library, further libraries of the same objects, build.json."""
        names = (*Target(self.facts.target).system.links, FACTS)
        return [self.library.parent / name for name in names]


def find_target(name: str) -> Target:
    """Target by name: a released target or this machine's. Raises BuildError for any other name."""
    known = {*RELEASED, this_target().name}
    if name not in known:
        raise BuildError(f"unknown target {name!r}; known: {', '.join(sorted(known))}")
    return Target(name)


def run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a compiler in the folder of sources, with `text` as standard input."""
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", cwd=SOURCES)


def zig_program() -> str | None:
    """Path of Zig: from the package `ziglang`, else from PATH; None if Zig is not installed."""
    spec = importlib.util.find_spec("ziglang")
    name = "zig.exe" if os.name == "nt" else "zig"
    packaged = Path(spec.origin).parent / name if spec and spec.origin else None
    return str(packaged) if packaged and packaged.exists() else shutil.which("zig")


def links(command: tuple[str, ...], target: Target) -> bool:
    """True if the command links a shared library: `cc` may be a stub or lack the system's headers."""
    probe = "#include <stdint.h>\n#include <pthread.h>\nint32_t probe(void) { return 0; }\n"
    system = target.system
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder, system.library))
        return run((*command, *system.flags, "-x", "c", "-", *system.link, "-o", out), probe).returncode == 0


def system_compilers(target: Target) -> Iterator[Compiler]:
    """Working compilers of this machine; if $CC is set, $CC is the only candidate."""
    if target != this_target():
        return
    named = shlex.split(os.environ.get("CC", ""))
    for command in [tuple(named)] if named else [(name,) for name in target.system.compilers]:
        if shutil.which(command[0]) and links(command, target):
            yield Compiler(command, run((*command, "--version")).stdout.partition("\n")[0])


def zig_compilers(target: Target) -> Iterator[Compiler]:
    """Zig, if installed: it cross-compiles for every released target."""
    program = zig_program()
    if program and target.name in RELEASED:
        version = run((program, "version")).stdout.strip()
        triple = target.system.zig.format(target.arch)
        yield Compiler((program, "cc", "-target", triple), f"zig {version}", is_zig=True)


def find_compiler(target: Target, *, by_zig: bool = False) -> Compiler:
    """First working compiler: the system's, else Zig; with `by_zig` Zig only.

    Raises NoCompilerError if no compiler works.
    """
    for candidates in (zig_compilers,) if by_zig else (system_compilers, zig_compilers):
        for compiler in candidates(target):
            return compiler
    raise NoCompilerError(f"no C compiler for {target.name}: {WAY_OUT}")


def has_compiler(target: Target) -> bool:
    """True if a compiler of this machine, other than Zig, links libraries for the target."""
    return any(True for _ in system_compilers(target))


def refusal(compiler: Compiler, flags: tuple[str, ...]) -> str:
    """First line of the compiler's error for these flags; empty if the compiler accepts them."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder, "probe.o"))
        done = run((*compiler.command, *flags, "-x", "c", "-c", "-", "-o", out), "int probe;\n")
    return (done.stderr.strip() or "refused").partition("\n")[0] if done.returncode else ""


def compiles(variants: Variants, baseline: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Compile jobs: (object name, source, flags...)."""
    has = tuple(f"-DCAM_HAS_{name.upper()}" for name in variants)
    for source in baseline:
        yield (source.removesuffix(".c"), source, *has)
    for name, flags in variants.items():
        yield (f"kernels_{name}", "kernels.c", f"-DCAM_ISA_{name.upper()}", f"-DCAM_VARIANT={name}", *flags)


def run_or_fail(command: Sequence[str], what: str) -> None:
    """Runs a compile and forwards its warnings to stderr. Raises BuildError with the compiler's messages."""
    with TURNS:
        done = run(command)
    if done.returncode:
        raise BuildError(f"{what} failed:\n{shlex.join(command)}\n{done.stderr.strip()}")
    sys.stderr.write(done.stderr)


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file atomically: to a temporary folder beside `path`, then by rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
        new = Path(folder, path.name)
        write(new)
        new.replace(path)


def compile_libraries(
    compiler: Compiler, target: Target, variants: Variants, flags: Iterable[str]
) -> Mapping[str, bytes]:
    """Compiles the variants and links them. Returns file name -> bytes of each library."""
    command = (*compiler.command, *flags)
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(job: tuple[str, ...]) -> str:
            name, source, *own = job
            made = str(Path(folder, f"{name}.o"))
            run_or_fail((*command, *own, "-c", source, "-o", made), f"{target.name}: {name}")
            return made

        with ThreadPoolExecutor(JOBS) as pool:
            made = list(pool.map(compile_one, compiles(variants, target.system.baseline)))
        strip = ("-s",) if compiler.is_zig else ()  # a local build keeps its symbols for profilers
        for name, link in target.system.links.items():
            out = str(Path(folder, name))  # in the temporary folder: some linkers write files beside `out`
            run_or_fail((*command, *made, *link, *strip, "-o", out), f"{target.name}: linking")
        return {name: Path(folder, name).read_bytes() for name in target.system.links}


def store(folder: Path, libraries: Mapping[str, bytes], facts: BuildRecord) -> None:
    """Writes the libraries, then build.json."""
    for name, data in libraries.items():
        replace(folder / name, lambda new, data=data: new.write_bytes(data))
    text = json.dumps(asdict(facts), indent=1) + "\n"
    replace(folder / FACTS, lambda new: new.write_text(text, encoding="utf-8"))


def choose_variants(compiler: Compiler, variants: Variants) -> tuple[Variants, dict[str, str]]:
    """Splits variants by the compiler's support.

    Returns (supported variant -> flags, unsupported variant -> the compiler's error).
    """
    own = ZIG_FLAGS if compiler.is_zig else {}
    flags = {name: own.get(name, flags) for name, flags in variants.items()}
    left_out = {name: why for name, chosen in flags.items() if (why := refusal(compiler, chosen))}
    return {name: chosen for name, chosen in flags.items() if name not in left_out}, left_out


def wanted_variants(target: Target, only: Collection[str]) -> Variants:
    """Variants of the target named in `only`; all if `only` is empty. Raises BuildError for unknown names."""
    unknown = sorted({*only} - {*target.variants})
    if unknown:
        known = ", ".join(target.variants)
        raise BuildError(f"target {target.name} has no variant {unknown[0]!r}; known: {known}")
    return {name: flags for name, flags in target.variants.items() if not only or name in only}


def build(
    target: Target,
    out: Path = LIB,
    *,
    extra: Sequence[str] = (),
    only: Collection[str] = (),
    by_zig: bool = False,
) -> Built:
    """Builds the target's library below `out`, unless `out` has a library of the same sources and flags.

    `extra` are flags of every compile; `only` names the variants (default: all); `by_zig` excludes the
    system's compilers, whose libraries depend on this system's libc. Raises BuildError if a compile fails,
    NoCompilerError if no compiler is installed.
    """
    files = [out / target.name / name for name in target.system.links]
    library = files[0]
    sources, flags = digest(target), [*FLAGS, *target.system.flags, *extra]
    wanted = wanted_variants(target, only)
    facts = read_facts(library, library.parent)
    if facts and all(map(Path.is_file, files)) and facts.is_of(sources, flags, wanted, by_zig=by_zig):
        return Built(library, facts, is_new=False)
    compiler = find_compiler(target, by_zig=by_zig)
    variants, left_out = choose_variants(compiler, wanted)
    facts = BuildRecord(
        target=target.name,
        sources=sources,
        compiler=compiler.version,
        is_zig=compiler.is_zig,
        flags=flags,
        variants={name: [*chosen] for name, chosen in variants.items()},
        left_out=left_out,
    )
    store(library.parent, compile_libraries(compiler, target, variants, flags), facts)
    return Built(library, facts, is_new=True)


def report(built: Built) -> str:
    """Report of a build: a line for the library and a line for each variant left out."""
    facts, size = built.facts, built.library.stat().st_size / 1e6
    state = "built" if built.is_new else "up to date, built"
    lines = [f"{built.library}: {state} by {facts.compiler}; {', '.join(facts.variants)}; {size:.2f} MB"]
    return "\n".join([*lines, *(f"left out {name}: {why}" for name, why in facts.left_out.items())])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m camelid_native.build", description="Build the CPU kernels."
    )
    add = parser.add_argument
    names = ", ".join(RELEASED)
    add("--target", action="append", metavar="T", help=f"target (default: this machine's); {names}")
    add("--all", action="store_true", help="build every released target")
    add("--variant", action="append", default=[], metavar="V", help="build this variant only; repeatable")
    add("--zig", action="store_true", help="compile with Zig even if the system has a C compiler")
    add("--out", type=Path, metavar="DIR", help="output folder (default: lib/ in the package)")
    add(
        "--sanitize",
        nargs="?",
        const="memory",
        choices=SANITIZE,
        help="build with sanitizers: `memory` AddressSanitizer and UBSan, `threads` ThreadSanitizer",
    )
    add("--werror", action="store_true", help="treat warnings as errors")
    add(
        "--optional",
        action="store_true",
        help="exit with 0 if no compiler is installed; CAMELID_NO_NATIVE=1 skips the build",
    )
    add("--quiet", action="store_true", help="print nothing for a library that is up to date")
    return parser.parse_args(arguments)


def attempt(options: argparse.Namespace, name: str) -> Built | BuildError:
    """Builds one target by the options. Returns a BuildError instead of raising it."""
    out: Path = options.out or SANITIZED.get(options.sanitize, LIB)
    extra = (*SANITIZE.get(options.sanitize, ()), *(("-Werror",) if options.werror else ()))
    try:
        return build(find_target(name), out, extra=extra, only=options.variant, by_zig=options.zig)
    except BuildError as error:
        return error


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the requested targets, all of them even if one fails. Returns exit code 1 if a build failed."""
    options = parse(arguments)
    n_failed = 0
    names = RELEASED if options.all else [*dict.fromkeys(options.target or [this_target().name])]
    if options.optional and os.environ.get(NO_NATIVE) == "1":
        names = ()
    with ThreadPoolExecutor(JOBS) as pool:
        for done in pool.map(partial(attempt, options), names):
            if isinstance(done, BuildError):
                print(f"camelid: {done}", file=sys.stderr)
                n_failed += not (options.optional and isinstance(done, NoCompilerError))
            elif done.is_new or not options.quiet:
                print(report(done), flush=True)
    return int(n_failed > 0)

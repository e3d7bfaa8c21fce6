"""Compiles the CPU kernels into one shared library: `python -m camelid_native.build`.

Standard library only, as the build hook runs this file before anything is installed. A library goes to
`lib/<target>/` beside this file, or below --out, with a `build.json` of what it was made of and how. One
that is made of the same already is left alone.
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

JOBS = 2  # compiles side by side: one of kernels.c takes a core and a few hundred megabytes
TURNS = Semaphore(JOBS)  # whatever their targets
TRACED = ("-g", "-fno-omit-frame-pointer")
# What a library is built to watch -> the flags for that.
SANITIZE: Mapping[str, tuple[str, ...]] = {
    # -O0: a third of the time to compile, and nothing is optimised away before it is watched.
    "memory": ("-O0", *TRACED, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-O1", *TRACED, "-fsanitize=thread"),
}
WAY_OUT = (
    "install a C compiler (Debian: gcc and libc6-dev; macOS: xcode-select --install), or "
    "pip install ziglang, then run `python -m camelid_native.build`"
)
NO_NATIVE = "CAMELID_NO_NATIVE"  # at 1: the install is to have no CPU backend
Variants = Mapping[str, tuple[str, ...]]


class BuildError(Exception):
    """A library cannot be built; says why and the way out."""


class NoCompilerError(BuildError):
    """Nothing here compiles C for the target."""


@dataclass(frozen=True)
class Compiler:
    """A command that compiles for one target."""

    command: tuple[str, ...]
    version: str
    is_zig: bool = False


@dataclass(frozen=True)
class Built:
    """A library, and whether it had to be compiled."""

    library: Path
    facts: BuildRecord
    is_new: bool

    @property
    def files(self) -> list[Path]:
        """The library, those linked beside it, and what is known of them."""
        names = (*Target(self.facts.target).system.links, FACTS)
        return [self.library.parent / name for name in names]


def find_target(name: str) -> Target:
    """The target of that name: one that is released, or this machine's."""
    known = {*RELEASED, this_target().name}
    if name not in known:
        raise BuildError(f"unknown target {name!r}; known: {', '.join(sorted(known))}")
    return Target(name)


def run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a compiler among the sources, with `text` as its standard input."""
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", cwd=SOURCES)


def zig_program() -> str | None:
    """Zig of the package `ziglang`, else on PATH."""
    spec = importlib.util.find_spec("ziglang")
    name = "zig.exe" if os.name == "nt" else "zig"
    packaged = Path(spec.origin).parent / name if spec and spec.origin else None
    return str(packaged) if packaged and packaged.exists() else shutil.which("zig")


def links(command: tuple[str, ...], target: Target) -> bool:
    """Whether a command makes libraries: a bare `cc` may be a stub, or lack headers."""
    probe = "#include <stdint.h>\n#include <pthread.h>\nint32_t probe(void) { return 0; }\n"
    system = target.system
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder, system.library))
        return run((*command, *system.flags, "-x", "c", "-", *system.link, "-o", out), probe).returncode == 0


def system_compilers(target: Target) -> Iterator[Compiler]:
    """The machine's own compilers that work; $CC is the only candidate where it is set."""
    if target != this_target():
        return
    named = shlex.split(os.environ.get("CC", ""))
    for command in [tuple(named)] if named else [(name,) for name in target.system.compilers]:
        if shutil.which(command[0]) and links(command, target):
            yield Compiler(command, run((*command, "--version")).stdout.partition("\n")[0])


def zig_compilers(target: Target) -> Iterator[Compiler]:
    """Zig, which compiles for every target that is released."""
    program = zig_program()
    if program and target.name in RELEASED:
        version = run((program, "version")).stdout.strip()
        triple = target.system.zig.format(target.arch)
        yield Compiler((program, "cc", "-target", triple), f"zig {version}", is_zig=True)


def find_compiler(target: Target, *, by_zig: bool = False) -> Compiler:
    """The first that works of the system's compilers, else Zig; or Zig alone."""
    for candidates in (zig_compilers,) if by_zig else (system_compilers, zig_compilers):
        for compiler in candidates(target):
            return compiler
    raise NoCompilerError(f"no C compiler for {target.name}: {WAY_OUT}")


def has_compiler(target: Target) -> bool:
    """Whether the machine's own compilers make libraries for the target."""
    return any(True for _ in system_compilers(target))


def refusal(compiler: Compiler, flags: tuple[str, ...]) -> str:
    """Why a compiler does not take these flags; empty if it does."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder, "probe.o"))
        done = run((*compiler.command, *flags, "-x", "c", "-c", "-", "-o", out), "int probe;\n")
    return (done.stderr.strip() or "refused").partition("\n")[0] if done.returncode else ""


def compiles(variants: Variants, baseline: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """(object's name, source, flags...) of every compile."""
    has = tuple(f"-DCAM_HAS_{name.upper()}" for name in variants)
    for source in baseline:
        yield (source.removesuffix(".c"), source, *has)
    for name, flags in variants.items():
        yield (f"kernels_{name}", "kernels.c", f"-DCAM_ISA_{name.upper()}", f"-DCAM_VARIANT={name}", *flags)


def run_or_fail(command: Sequence[str], what: str) -> None:
    """Runs a compile; what it complains of is the error's text, its warnings go to stderr."""
    with TURNS:
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


def compile_libraries(
    compiler: Compiler, target: Target, variants: Variants, flags: Iterable[str]
) -> Mapping[str, bytes]:
    """The libraries of these variants, by their files' names."""
    given = (*compiler.command, *flags)
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(job: tuple[str, ...]) -> str:
            name, source, *own = job
            made = str(Path(folder, f"{name}.o"))
            run_or_fail((*given, *own, "-c", source, "-o", made), f"{target.name}: {name}")
            return made

        with ThreadPoolExecutor(JOBS) as pool:
            made = list(pool.map(compile_one, compiles(variants, target.system.baseline)))
        strip = ("-s",) if compiler.is_zig else ()  # symbols help who works on the kernels
        for name, link in target.system.links.items():
            out = str(Path(folder, name))  # here, as some linkers leave files beside their output
            run_or_fail((*given, *made, *link, *strip, "-o", out), f"{target.name}: linking")
        return {name: Path(folder, name).read_bytes() for name in target.system.links}


def store(folder: Path, libraries: Mapping[str, bytes], facts: BuildRecord) -> None:
    """Writes libraries, then what is known of them."""
    for name, data in libraries.items():
        replace(folder / name, lambda new, data=data: new.write_bytes(data))
    text = json.dumps(asdict(facts), indent=1) + "\n"
    replace(folder / FACTS, lambda new: new.write_text(text, encoding="utf-8"))


def choose_variants(compiler: Compiler, variants: Variants) -> tuple[Variants, dict[str, str]]:
    """Those that the compiler knows, with their flags; and the others, with what it said."""
    own = ZIG_FLAGS if compiler.is_zig else {}
    flags = {name: own.get(name, flags) for name, flags in variants.items()}
    left_out = {name: why for name, given in flags.items() if (why := refusal(compiler, given))}
    return {name: given for name, given in flags.items() if name not in left_out}, left_out


def wanted_variants(target: Target, only: Collection[str]) -> Variants:
    """All, or those of these names."""
    unknown = sorted({*only} - {*target.variants})
    if unknown:
        raise BuildError(f"{target.name} has no variant {unknown[0]!r}; it has {', '.join(target.variants)}")
    return {name: flags for name, flags in target.variants.items() if not only or name in only}


def build(
    target: Target,
    out: Path = LIB,
    *,
    extra: Sequence[str] = (),
    only: Collection[str] = (),
    by_zig: bool = False,
) -> Built:
    """Builds the target's library below `out`, unless it stands there and is made of the same.

    `extra` are flags for every compile, `only` names variants if not all are wanted; `by_zig` takes no
    compiler of the system, whose libraries ask for this system. BuildError if a compile fails,
    NoCompilerError if nothing here could try.
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
        variants={name: [*given] for name, given in variants.items()},
        left_out=left_out,
    )
    store(library.parent, compile_libraries(compiler, target, variants, flags), facts)
    return Built(library, facts, is_new=True)


def report(built: Built) -> str:
    """A line on the library, and one for each variant that it lacks."""
    facts, size = built.facts, built.library.stat().st_size / 1e6
    state = "built" if built.is_new else "up to date, built"
    lines = [f"{built.library}: {state} by {facts.compiler}; {', '.join(facts.variants)}; {size:.2f} MB"]
    return "\n".join([*lines, *(f"left out {name}: {why}" for name, why in facts.left_out.items())])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m camelid_native.build", description="Build the CPU kernels."
    )
    add = parser.add_argument
    add("--target", action="append", metavar="T", help=f"this machine's if not given; {', '.join(RELEASED)}")
    add("--all", action="store_true", help="every target that a release carries")
    add("--variant", action="append", default=[], metavar="V", help="this one of the kernels alone, or these")
    add("--zig", action="store_true", help="by Zig, whatever compilers the system has")
    add("--out", type=Path, metavar="DIR", help="instead of the package's lib/")
    add(
        "--sanitize",
        nargs="?",
        const="memory",
        choices=SANITIZE,
        help="watch `memory` by AddressSanitizer and UBSan, or `threads` by ThreadSanitizer",
    )
    add("--werror", action="store_true", help="a warning fails")
    add(
        "--optional",
        action="store_true",
        help="exit code 0 where there is no compiler; CAMELID_NO_NATIVE=1 skips",
    )
    add("--quiet", action="store_true", help="say nothing of a library that is up to date")
    return parser.parse_args(arguments)


def attempt(options: argparse.Namespace, name: str) -> Built | BuildError:
    """Builds one target as the options say. Gives the error if it cannot."""
    out: Path = options.out or SANITIZED.get(options.sanitize, LIB)
    extra = (*SANITIZE.get(options.sanitize, ()), *(("-Werror",) if options.werror else ()))
    try:
        return build(find_target(name), out, extra=extra, only=options.variant, by_zig=options.zig)
    except BuildError as error:
        return error


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds what is asked for, all of it even if some fails; exit code 1 if some failed."""
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

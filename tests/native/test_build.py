"""`python -m camelid_native.build` with stand-in kernels: its compilations, its rebuilds, its failures."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.native.stand_in import FAKE_COMPILER, NO_PROGRAMS, Project, make_program, make_project

from camelid_native.build.targets import RELEASED, SYSTEMS, VARIANTS, Target
from camelid_native.cpu.records import ABI

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.system() == "Windows", reason="not on this platform: stand-ins are shell scripts"
    ),
]
# A compiler that refuses one flag, like a compiler older than an instruction set.
OLD_COMPILER = """#!/bin/sh
case " $* " in *" {flag} "*) echo "cc: error: unknown option {flag}" >&2; exit 1 ;; esac
exec cc "$@"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A compiler without delay."""
    return make_program(tmp_path / "bin/zig", FAKE_COMPILER.format(log=tmp_path / "log"))


def facts(library: Path) -> dict[str, Any]:
    return json.loads((library.parent / "build.json").read_text())


def call(library: Path, name: str) -> int:
    return getattr(ctypes.CDLL(str(library)), name)()


def test_library_of_all_variants(project: Project) -> None:
    done = project.build("--werror")
    assert done.returncode == 0, done.stderr
    made = facts(project.library)
    assert [*made["variants"]] == [*project.target.variants]
    assert (made["left_out"], made["is_zig"], made["target"]) == ({}, False, project.target.name)
    assert call(project.library, "cam_abi") == ABI
    # The fastest variant's row is present and defined in the baseline's build.
    assert call(project.library, "stand_in_has") == (3 if project.target.arch in VARIANTS else 1)
    assert sorted(path.name for path in project.library.parent.iterdir()) == [
        "build.json",
        project.library.name,
    ]


CHANGES = {
    "nothing": lambda project: None,
    "a source": lambda project: project.source("pool.c").write_text("enum { PART = 1 };\n"),
    "a header": lambda project: project.source("shared.h").write_text(
        project.source("shared.h").read_text() + "// more\n"
    ),
    "a file more": lambda project: project.source("more.h").touch(),
    "no build.json": lambda project: (project.library.parent / "build.json").unlink(),
    "a broken build.json": lambda project: (project.library.parent / "build.json").write_text("[1"),
    "a foreign build.json": lambda project: (project.library.parent / "build.json").write_text('{"a": 1}'),
    "no library": lambda project: project.library.unlink(),
}
TWIN = "camelid_cpu_threads.wasm"  # linked from its neighbour's objects


@pytest.mark.parametrize("change", CHANGES)
def test_rebuilds_changed_targets(project: Project, fake: Path, change: str) -> None:
    assert project.build(CC=str(fake)).returncode == 0
    before = project.library.stat().st_mtime_ns
    CHANGES[change](project)
    quiet, done = (project.build(*options, CC=str(fake)) for options in (["--quiet"], []))
    assert (quiet.returncode, done.returncode) == (0, 0), quiet.stderr
    is_same = project.library.stat().st_mtime_ns == before
    assert is_same == (change == "nothing") == (quiet.stdout == "")
    assert "up to date" in done.stdout


def test_flags_are_compared(project: Project, fake: Path) -> None:
    rows = ([], False), (["--werror"], False), (["--werror"], True)
    for options, is_up_to_date in rows:
        assert ("up to date" in project.build(*options, CC=str(fake)).stdout) == is_up_to_date


def test_variant_unknown_to_the_compiler(project: Project, tmp_path: Path) -> None:
    if project.target.arch not in VARIANTS:
        pytest.skip("not on this platform: it has one variant")
    *others, (name, flags) = project.target.variants.items()
    flag = next(flag for flag in flags if not any(flag in theirs for _, theirs in others))
    old = make_program(tmp_path / "old", OLD_COMPILER.format(flag=flag))
    done = project.build(CC=str(old))
    assert done.returncode == 0, done.stderr
    assert f"left out {name}: cc: error: unknown option {flag}" in done.stdout
    assert [*facts(project.library)["left_out"]] == [name]
    assert call(project.library, "stand_in_has") == 1


def test_failed_compile_keeps_the_library(project: Project) -> None:
    assert project.build().returncode == 0
    before = project.library.read_bytes()
    project.source("kernels.c").write_text("int missing_semicolon\n")
    done = project.build("--optional")
    assert done.returncode == 1
    assert "kernels_portable failed" in done.stderr and "expected" in done.stderr
    assert project.library.read_bytes() == before


def test_undefined_function_fails_the_link(project: Project) -> None:
    project.source("pool.c").write_text("int missing(void);\nint pool(void) { return missing(); }\n")
    done = project.build()
    assert done.returncode == 1 and "linking failed" in done.stderr


def test_warning_fails_only_with_werror(project: Project) -> None:
    project.source("api.c").write_text("static int unused;\n")
    assert project.build("--werror").returncode == 1
    done = project.build()
    assert done.returncode == 0 and "unused" in done.stderr


STUB = "#!/bin/sh\nexit 1\n"


@pytest.mark.parametrize(
    ("path", "cc"), [(NO_PROGRAMS, ""), ("stubs", ""), (None, "no-such-compiler"), (None, "false")]
)
def test_no_compiler(project: Project, path: str | None, cc: str) -> None:
    """None on PATH, only stubs on PATH, or CC names none."""
    for name in ("cc", "gcc", "clang"):
        make_program(project.root / "stubs" / name, STUB)
    where = {"PATH": str(project.root / path)} if path else {}
    done = project.build(CC=cc, **where)
    assert done.returncode == 1
    assert "no C compiler" in done.stderr and "pip install ziglang" in done.stderr
    optional = project.build("--optional", CC=cc, **where)
    assert optional.returncode == 0 and optional.stderr.count("\n") == 1
    assert not project.library.exists()


def test_no_native_applies_to_optional_builds_only(project: Project, fake: Path) -> None:
    """make passes --optional; a typed command always builds."""
    done = project.build("--optional", CC=str(fake), CAMELID_NO_NATIVE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert project.build(CC=str(fake), CAMELID_NO_NATIVE="1").returncode == 0 and project.library.exists()


def test_zig_replaces_the_systems_compiler(project: Project, fake: Path) -> None:
    """A library by the system's compiler is rebuilt; a library by Zig satisfies a build without --zig."""
    path = f"{fake.parent}:/usr/bin:/bin"
    found: list[tuple[bool, bool]] = []
    for options in ([], ["--zig"], ["--zig"], []):
        done = project.build(*options, PATH=path)
        found.append((facts(project.library)["is_zig"], "up to date" in done.stdout))
    assert found == [(False, False), (True, False), (True, True), (True, True)]


def test_partial_build_is_not_taken_for_a_full_one(project: Project, fake: Path) -> None:
    *others, last = project.target.variants
    assert "up to date" not in project.build("--variant", last, CC=str(fake)).stdout
    assert [*facts(project.library)["variants"]] == [last]
    assert "up to date" in project.build("--variant", last, CC=str(fake)).stdout
    assert project.build(CC=str(fake)).returncode == 0
    assert [*facts(project.library)["variants"]] == [*others, last]
    done = project.build("--variant", "mmx", CC=str(fake))
    assert done.returncode == 1 and "no variant 'mmx'" in done.stderr


def test_unknown_target(project: Project) -> None:
    done = project.build("--target", "beos-ppc")
    assert done.returncode == 1
    assert "unknown target 'beos-ppc'" in done.stderr and "linux-aarch64" in done.stderr


def by_zig(project: Project, fake: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return project.build(*options, CC="false", PATH=f"{fake.parent}:/usr/bin:/bin")


def test_all_targets_by_zig(project: Project, fake: Path, tmp_path: Path) -> None:
    """Every compilation of a release, by Zig's arguments."""
    done = by_zig(project, fake, "--all", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "log").read_text().splitlines()
    for target in map(Target, RELEASED):
        library = tmp_path / "out" / target.path
        made = facts(library)
        assert library.read_text() == "made\n"
        assert ([*made["variants"]], made["compiler"], made["is_zig"]) == (
            [*target.variants],
            "zig 9.9",
            True,
        )
        own = [line for line in calls if f" -target {target.system.zig.format(target.arch)} " in line]
        assert any(library.name in line for line in own), target.name
    compiles = [line for line in calls if " -c kernels.c " in line]
    assert len(compiles) == sum(len(Target(name).variants) for name in RELEASED)
    assert all({"-ffp-contract=off", "-fno-math-errno", "-O3"} <= {*line.split()} for line in compiles)
    assert (
        sum("-DCAM_ISA_NEON_I8MM" in line and "+i8mm" in line and "-march" not in line for line in calls) == 3
    )


def test_modules_of_wasm_are_compiled_once_and_linked_twice(
    project: Project, fake: Path, tmp_path: Path
) -> None:
    options = ("--target", "wasm-simd", "--out", tmp_path / "out")
    twin = tmp_path / "out/wasm-simd" / TWIN
    for is_there in (False, True, False):  # a build creates a missing module, and nothing else
        calls = len((tmp_path / "log").read_text().splitlines()) if (tmp_path / "log").exists() else 0
        assert by_zig(project, fake, *options).returncode == 0
        made = (tmp_path / "log").read_text().splitlines()[calls:]
        assert len([line for line in made if " -c kernels.c " in line]) == int(not is_there)
        assert [line.partition(" -o ")[2].rpartition("/")[2] for line in made if "--no-entry" in line] == (
            [] if is_there else ["camelid_cpu.wasm", TWIN]
        )
        if is_there:
            twin.unlink()
    assert twin.read_text() == "made\n"


def test_one_failed_target_does_not_stop_the_others(project: Project, fake: Path, tmp_path: Path) -> None:
    wanted = ("linux-x86_64", "beos-ppc", "wasm-simd")
    options = [word for name in wanted for word in ("--target", name)]
    assert by_zig(project, fake, *options, "--out", tmp_path / "out").returncode == 1
    assert [(tmp_path / "out" / name).exists() for name in wanted] == [True, False, True]


def test_every_supported_system_has_a_release_target() -> None:
    assert {name.partition("-")[0] for name in RELEASED} == {*SYSTEMS}


def test_sanitized_build_loads_and_detects_faults(project: Project) -> None:
    compiler = shutil.which("cc")
    runtime = subprocess.run(
        [str(compiler), "-print-file-name=libasan.so"], capture_output=True, text=True
    ).stdout
    if platform.system() != "Linux" or not Path(runtime.strip()).is_absolute():
        pytest.skip("not on this platform: AddressSanitizer's library is loaded first by LD_PRELOAD")
    done = project.build("--sanitize")
    assert done.returncode == 0, done.stderr
    library = project.library.parents[1] / "sanitized" / project.target.path
    assert not project.library.exists() and "-fsanitize=address,undefined" in facts(library)["flags"]
    load = "from camelid_native.cpu.library import load; print(load().{})"
    setting = {"CAMELID_NATIVE_DIR": str(library.parents[1]), "LD_PRELOAD": runtime.strip()}
    setting["ASAN_OPTIONS"] = "detect_leaks=0"  # the interpreter frees nothing at exit
    sound = project.python("-c", load.format("cam_abi()"), **setting)
    assert sound.stdout == f"{ABI}\n", sound.stderr
    fault = project.python("-c", load.format("stand_in_read(5)"), **setting)
    assert fault.returncode and ("runtime error" in fault.stderr or "AddressSanitizer" in fault.stderr)

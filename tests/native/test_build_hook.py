"""The hook that compiles the kernels for a wheel, with stand-in kernels."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.native.stand_in import (
    FAKE_COMPILER,
    NO_PROGRAMS,
    ROOT,
    Project,
    make_program,
    make_project,
)

from camelid_native.build.targets import RELEASED, BuildRecord, Target, this_target

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.system() == "Windows", reason="not on this platform: stand-ins are shell scripts"
    ),
]
LIB = "camelid_native/lib/"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A compiler without delay."""
    return make_program(tmp_path / "bin/zig", FAKE_COMPILER.format(log=tmp_path / "log"))


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_hook", ROOT / "native/build_hook.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(project: Project, done: subprocess.CompletedProcess[str]) -> tuple[str, set[str], str]:
    """The wheel's tag, its libraries' files, and its WHEEL file."""
    assert done.returncode == 0, done.stderr
    (wheel,) = (project.root / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (facts,) = (archive.read(name).decode() for name in names if name.endswith("/WHEEL"))
    files = {name.removeprefix(LIB) for name in names if name.startswith(LIB)}
    return wheel.stem.partition("-py3-")[2], files, facts


def files_of(*targets: Target) -> set[str]:
    names = {name for target in targets for name in (target.path, f"{target.name}/build.json")}
    wasm = (target.name for target in targets if target.name.startswith("wasm"))
    return names | {f"{name}/camelid_cpu_threads.wasm" for name in wasm}


def test_wheel_of_this_machine(project: Project) -> None:
    """Only this machine's library is packed, even beside others; the wheel's tag names the platform."""
    stray = project.library.parents[1] / "sanitized/linux-x86_64/libcamelid_cpu.so"
    stray.parent.mkdir(parents=True)
    stray.touch()
    done = project.wheel()
    tag, files, facts = made(project, done)
    assert tag.startswith("none-") and tag.endswith(platform.machine()) and "any" not in tag
    assert files == files_of(this_target())
    assert "Root-Is-Purelib: false" in facts
    assert this_target().path in done.stderr + done.stdout, "the size is not reported"


def test_pure_wheel_without_a_compiler(project: Project) -> None:
    done = project.wheel(PATH=NO_PROGRAMS)
    tag, files, facts = made(project, done)
    assert (tag, files) == ("none-any", set()) and "Root-Is-Purelib: true" in facts
    said = done.stdout + done.stderr
    assert said.count("installed without the CPU backend") == 1 and "pip install ziglang" in said


def test_pure_wheel_on_request(project: Project, fake: Path) -> None:
    done = project.wheel(CC=str(fake), CAMELID_NO_NATIVE="1")
    assert made(project, done)[:2] == ("none-any", set())
    assert "CPU backend" not in done.stdout + done.stderr and not project.library.exists()


def test_failed_compile_fails_the_wheel(project: Project) -> None:
    project.source("kernels.c").write_text("int missing_semicolon\n")
    done = project.wheel()
    said = done.stdout + done.stderr
    assert done.returncode and "kernels_portable failed" in said and "CAMELID_NO_NATIVE=1" in said


def test_wheel_of_all_platforms(project: Project, fake: Path) -> None:
    path = f"{fake.parent}:/usr/bin:/bin"
    done = project.wheel(PATH=path, CC="false", CAMELID_NATIVE_TARGETS="all")
    assert made(project, done)[:2] == ("none-any", files_of(*map(Target, RELEASED)))


def test_named_platform_is_built_by_zig(project: Project, fake: Path) -> None:
    """Also for this platform: the system's linker would require this system. The checkout keeps its
    library.
    """
    done = project.wheel(PATH=f"{fake.parent}:/usr/bin:/bin", CAMELID_NATIVE_TARGETS=this_target().name)
    tag, files, _ = made(project, done)
    assert "linux" not in this_target().name or tag.startswith("none-manylinux_2_17_")
    assert files == files_of(this_target()) and not project.library.exists()


def test_named_platform_without_a_compiler(project: Project) -> None:
    """A requested platform is built, or the wheel fails."""
    done = project.wheel(PATH=NO_PROGRAMS, CAMELID_NATIVE_TARGETS="macos-aarch64")
    assert done.returncode and "no C compiler for macos-aarch64" in done.stdout + done.stderr


@pytest.mark.parametrize(("size", "fails"), [(900, False), (1100, True)])
def test_oversized_libraries_fail_the_wheel(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, fails: bool
) -> None:
    monkeypatch.setattr(hook, "MAX_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr(f"{LIB}a/lib.so", bytes(size - 100))
        archive.writestr(f"{LIB}b/lib.so", bytes(100))
        archive.writestr("camelid/data/cria.gguf", bytes(5000))
    with pytest.raises(SystemExit) if fails else nullcontext():
        hook.NativeHook(str(ROOT), {}, None, None, "", "wheel").finalize("standard", {}, tmp_path / "a.whl")


def test_editable_install_compiles_into_the_checkout(project: Project, fake: Path) -> None:
    done = project.wheel("editable", CC=str(fake))
    assert made(project, done)[:2] == ("none-any", set())
    assert project.library.read_text() == "made\n"


@pytest.mark.parametrize(
    ("setting", "has_compiler", "has_zig", "wants_zig"),
    [
        ({}, True, False, False),
        ({}, False, True, False),
        ({}, False, False, True),
        ({"CAMELID_NO_NATIVE": "1"}, False, False, False),
        ({"CAMELID_NATIVE_TARGETS": "all"}, True, False, True),
        ({"CAMELID_NATIVE_TARGETS": "all"}, True, True, False),
        ({"CAMELID_NATIVE_TARGETS": "all", "CAMELID_NO_NATIVE": "1"}, True, False, False),
    ],
)
def test_zig_is_required_only_where_needed(
    hook: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    setting: dict[str, str],
    has_compiler: bool,
    has_zig: bool,
    wants_zig: bool,
) -> None:
    monkeypatch.setattr(hook.builder, "has_compiler", lambda target: has_compiler)
    monkeypatch.setattr(hook.builder, "zig_program", lambda: "zig" if has_zig else None)
    for name in ("CAMELID_NO_NATIVE", "CAMELID_NATIVE_TARGETS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    made = hook.NativeHook(str(ROOT), {}, None, None, "", "wheel").dependencies()
    assert [name.partition(">")[0] for name in made] == (["ziglang"] if wants_zig else [])


@pytest.mark.parametrize(
    ("target", "want"),
    [
        ("linux-x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ("linux-aarch64", "manylinux_2_17_aarch64.manylinux2014_aarch64"),
        ("musl-aarch64", "musllinux_1_1_aarch64"),
        ("macos-aarch64", "macosx_11_0_arm64"),
        ("macos-x86_64", "macosx_11_0_x86_64"),
        ("windows-x86_64", "win_amd64"),
    ],
)
def test_platform_tags_of_zig_builds(hook: ModuleType, target: str, want: str) -> None:
    """Tags by PEP 425, 600 and 656."""
    rest = {"sources": "", "compiler": "", "flags": [], "variants": {}, "left_out": {}}
    assert hook.platform_of(BuildRecord(target=target, is_zig=True, **rest)) == want

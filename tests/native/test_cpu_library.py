"""Finding and loading the library: the override, the package, a zip; refusals with the way out."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.native.stand_in import ROOT, Project, make_project

from camelid.backends.proof.verdicts import cache_folder
from camelid.errors import BackendError
from camelid_native.cpu import library as cpu_library
from camelid_native.cpu.records import ABI

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.system() == "Windows", reason="not on this platform: gcc makes the stand-in"),
]
LOAD = (
    "from camelid_native.cpu.library import load; library = load(); print(library._name, library.cam_abi())"
)
REFUSED = """
from camelid.backends.proof.verdicts import cache_folder
from camelid.errors import BackendError
from camelid_native.cpu.library import load
try:
    load()
except BackendError as error:
    print(error.backend, error.message)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with its library; read-only for tests."""
    project = make_project(tmp_path_factory.mktemp("built"))
    assert project.build().returncode == 0
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    """A writable copy of the project."""
    shutil.copytree(built.root, tmp_path / "project")
    return Project(tmp_path / "project")


def test_loads_from_the_package(built: Project) -> None:
    done = built.python("-c", LOAD)
    assert done.stdout.split() == [str(built.library), str(ABI)], done.stderr


def test_override_comes_first(project: Project, tmp_path: Path) -> None:
    shutil.copytree(project.library.parents[1], tmp_path / "mine")
    done = project.python("-c", LOAD, CAMELID_NATIVE_DIR=str(tmp_path / "mine"))
    assert done.stdout.split() == [str(tmp_path / "mine" / project.target.path), str(ABI)], done.stderr


def test_library_without_facts_is_loaded(project: Project, tmp_path: Path) -> None:
    """A packager may compile the library with other tools."""
    mine = tmp_path / "mine" / project.target.path
    mine.parent.mkdir(parents=True)
    shutil.copy(project.library, mine)
    done = project.python("-c", LOAD, CAMELID_NATIVE_DIR=str(tmp_path / "mine"))
    assert done.stdout.split() == [str(mine), str(ABI)], done.stderr


def rebuild_with(project: Project, name: str, old: str, new: str) -> None:
    source = project.source(name)
    source.write_text(source.read_text().replace(old, new))
    assert project.build().returncode == 0


# Fault -> how to cause it, and the words of its error.
WRONG: dict[str, tuple[Callable[[Project], object], str]] = {
    "no library": (lambda project: shutil.rmtree(project.library.parents[1]), "was not built"),
    "other sources": (
        lambda project: project.source("more.c").write_text("int more;\n"),
        "was built from other sources than this checkout's",
    ),
    "other records": (
        lambda project: rebuild_with(project, "shared.h", f"CAM_ABI {ABI}", "CAM_ABI 77"),
        f"has ABI version 77, expected {ABI}",
    ),
    "no library at all": (
        lambda project: project.library.write_bytes(b"text"),
        "cannot be loaded as Camelid's CPU library",
    ),
    "somebody's library": (
        lambda project: rebuild_with(project, "api.c", "cam_abi", "other_abi"),
        "cannot be loaded as Camelid's CPU library",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_refuses_invalid_calls(project: Project, wrong: str) -> None:
    breaks, message = WRONG[wrong]
    breaks(project)
    said = project.python("-c", REFUSED)
    assert said.stdout.startswith("cpu "), said.stderr
    assert message in said.stdout
    assert "`python -m camelid_native.build`" in said.stdout
    if wrong != "no library":
        assert str(project.library) in said.stdout


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("elsewhere", "build --out {}`"),
        ("native/camelid_native/lib/sanitized", "build --sanitize memory`"),
        ("native/camelid_native/lib/sanitized-threads", "build --sanitize threads`"),
    ],
)
def test_error_names_the_rebuild_command(project: Project, folder: str, command: str) -> None:
    """The command rebuilds the library in CAMELID_NATIVE_DIR."""
    place = project.root / folder
    shutil.copytree(project.library.parent, place / project.target.name)
    project.source("more.c").write_text("int more;\n")
    said = project.python("-c", REFUSED, CAMELID_NATIVE_DIR=str(place))
    assert (
        "was built from other sources than this checkout's" in said.stdout
        and command.format(place) in said.stdout
    )


def test_override_without_a_library(built: Project, tmp_path: Path) -> None:
    said = built.python("-c", REFUSED, CAMELID_NATIVE_DIR=str(tmp_path))
    assert f"CAMELID_NATIVE_DIR={tmp_path} has no {built.target.path}" in said.stdout
    assert f"--out {tmp_path}" in said.stdout


def test_import_compiles_nothing(project: Project) -> None:
    shutil.rmtree(project.library.parents[1])
    code = (
        "import sys, camelid_native.cpu.library as c;"
        "print(c.find(), 'camelid_native.build.library' in sys.modules)"
    )
    assert project.python("-c", code).stdout.split() == ["None", "False"]
    assert not project.library.exists()


@pytest.fixture(scope="module")
def packed(built: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a zip. Its library is large, so that a partial read would show."""
    path = tmp_path_factory.mktemp("packed") / "camelid_native.zip"
    package = built.root / "native/camelid_native"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                padding = bytes(8 << 20) if file == built.library else b""
                archive.writestr(f"camelid_native/{file.relative_to(package)}", file.read_bytes() + padding)
    return path


def start_from_zip(packed: Path, cache: Path, code: str = LOAD) -> subprocess.Popen[str]:
    setup = f"import sys; sys.path[:0] = [{str(packed)!r}, {str(ROOT / 'core')!r}]\n"
    setting = {"CAMELID_CACHE": str(cache), "PATH": "/nonexistent"}
    command = [sys.executable, "-S", "-c", setup + code]
    return subprocess.Popen(command, env=setting, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_zip_is_unpacked_once(packed: Path, tmp_path: Path) -> None:
    """Several concurrent processes, then one more: all load the same file, and no other file stays."""
    cache = tmp_path / "cache"
    running = [start_from_zip(packed, cache) for _ in range(3)]
    told = [process.communicate() for process in running]
    (unpacked,) = [path for path in cache.rglob("*") if path.is_file()]
    assert {out.split()[0] for out, _ in told} == {str(unpacked)}, told
    before = unpacked.stat()
    assert start_from_zip(packed, cache).communicate()[0].split() == [str(unpacked), str(ABI)]
    assert (unpacked.stat().st_mtime_ns, unpacked.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.fixture
def zipped(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the zip on this process's path. Returns the cache."""
    monkeypatch.delenv("CAMELID_NATIVE_DIR", raising=False)
    monkeypatch.setenv("CAMELID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_library, "files", lambda name: zipfile.Path(packed, f"{name}/"))
    return tmp_path / "cache"


def test_zip_replaces_a_damaged_copy(zipped: Path) -> None:
    path = cpu_library.find()
    assert path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert cpu_library.find() == path and path.read_bytes() == whole


def test_zip_unpacks_by_rename(zipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process stopped before the rename leaves no partial library."""

    def stop(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        cpu_library.find()
    assert not [path for path in zipped.rglob("*") if path.is_file()]


def test_zip_with_an_unwritable_cache(zipped: Path) -> None:
    zipped.write_text("a file, where a folder should be")
    with pytest.raises(BackendError, match="CAMELID_CACHE=DIR") as caught:
        cpu_library.find()
    assert str(zipped) in str(caught.value) and caught.value.backend == "cpu"


@pytest.mark.parametrize(
    ("setting", "want"),
    [
        ({"CAMELID_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/camelid"),
        ({"HOME": "/home/user"}, "/home/user/.cache/camelid"),
    ],
)
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], want: str) -> None:
    for name in ("CAMELID_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == want


def test_facts_name_no_path(built: Project) -> None:
    """A library built elsewhere holds no path of the building machine."""
    text = (built.library.parent / "build.json").read_text()
    assert str(built.root) not in text and "target" in json.loads(text)

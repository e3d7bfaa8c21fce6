"""The four installations of Camelid: a wheel, an editable install, a zip on sys.path, a bare checkout.

Installing needs no network: `--no-deps`, and a .pth file adds this environment's packages to the new one.
Nested .pth files are not read, so an editable Camelid of this environment stays invisible there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.vectors.inside import CACHE, PYODIDE

from camelid.server.page_files import FILES

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
Python = Callable[..., str]

# Run in the tested environment: the path of camelid, its shaders, and all other loaded modules.
PROBE = """
import json, sys
before = set(sys.modules)
import camelid
new = set(sys.modules) - before
loaded = sorted(name for name in new if name.split(".")[0] not in sys.stdlib_module_names)
from camelid.backends.webgpu import shaders
import camelid_native
print(json.dumps({"file": camelid.__file__, "version": camelid.__version__, "loaded": loaded,
                  "native": camelid_native.__file__, "shaders": len(shaders.join(*shaders.names()))}))
"""


def run(*command: str | Path, cwd: Path = Path("/"), **environment: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def make_environment(folder: Path) -> Path:
    """The Python of an empty environment that borrows this one's packages."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(purelib, "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python


def install(python: Path, *what: str | Path) -> None:
    """Installs without compiling the kernels, which tests/native/test_build_hook.py tests."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "install", *options, *what, CAMELID_NO_NATIVE="1")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel made from the source archive, as in publishing: files missing there are missing here."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (source,) = folder.glob("*.tar.gz")
    run("tar", "-xf", source, "-C", folder)
    unpacked = folder / source.name.removesuffix(".tar.gz")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    run(*build, cwd=unpacked, CAMELID_NO_NATIVE="1")
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = make_environment(tmp_path_factory.mktemp("wheel") / "venv")
    install(python, wheel)
    return python


@pytest.fixture(scope="module")
def build() -> Iterator[ModuleType]:
    """web/build.py as a module."""
    spec = importlib.util.spec_from_file_location("web_build", ROOT / "web" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "web")
        spec.loader.exec_module(module)
        yield module


def check_probe(out: str, home: Path) -> None:
    found = json.loads(out)
    assert Path(found["file"]).is_relative_to(home)
    assert found["loaded"] == ["camelid", "camelid.version"], "import camelid must load nothing else"
    assert found["shaders"] > 100


def test_wheel_is_pure_and_complete(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = {f"camelid/_shaders/{path.name}" for path in (ROOT / "shaders").glob("*.wgsl")}
    source |= {
        f"camelid/{path.relative_to(ROOT / 'core/camelid')}" for path in (ROOT / "core/camelid").rglob("*.py")
    }
    kernels = ROOT / "native/camelid_native/cpu/c"  # sources for a later compilation
    source |= {f"camelid_native/cpu/c/{path.relative_to(kernels)}" for path in kernels.rglob("*.[ch]")}
    assert source <= names
    assert {f"camelid/_web/{name}" for name in FILES.values()} <= names
    assert {"camelid/_web/build.py", "camelid/py.typed", "camelid_native/__init__.py"} <= names
    assert {
        f"camelid/data/{name}"
        for name in ("cria.gguf", "graphemes.txt", "iq_grids.bin", "unicode.txt", "unicode_maps.txt")
    } <= names
    assert not [name for name in names if name.startswith(("cria/", "tests/")) or "__pycache__" in name]


def test_wheel_in_an_empty_environment(installed: Path) -> None:
    check_probe(run(installed, "-I", "-c", PROBE), installed.parents[1])


def test_wheel_has_the_command(installed: Path) -> None:
    help_text = run(installed.parent / "camelid", "--help")
    assert "run" in help_text
    assert help_text == run(installed, "-m", "camelid", "--help").replace("python -m camelid", "camelid")


def test_wheel_answers(installed: Path) -> None:
    """cria is part of the wheel and answers from a folder outside the checkout."""
    answer = run(installed.parent / "camelid", "run", "-p", "What is 12 plus 30?", "--backend", "reference")
    assert "42" in answer


def test_editable_install(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    install(python, "--editable", ROOT)
    check_probe(run(python, "-I", "-c", PROBE), ROOT)


def test_zip_import(wheel: Path) -> None:
    """A wheel is a zip; on sys.path it works packed or unpacked."""
    code = f"import sys; sys.path.insert(0, {str(wheel)!r})\n{PROBE}"
    check_probe(run(sys.executable, "-I", "-S", "-c", code), wheel)


def test_tests_run_without_an_install(tmp_path: Path) -> None:
    """An environment with pytest and without Camelid collects and runs tests from the checkout."""
    python = make_environment(tmp_path / "venv")
    one = "tests/test_layers.py::test_imports_point_down"
    out = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", one, cwd=ROOT, CI="")
    assert "passed" in out


def test_browser_archive_is_reproducible(build: ModuleType, tmp_path: Path) -> None:
    build.write_archive(tmp_path / "a.zip")
    build.write_archive(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_browser_archive_is_standard_library_only(build: ModuleType, tmp_path: Path) -> None:
    """Every module of the archive imports without site-packages, except the modules that need a browser."""
    build.write_archive(tmp_path / "camelid.zip")
    with zipfile.ZipFile(tmp_path / "camelid.zip") as archive:
        files = archive.namelist()
    assert not [
        name
        for name in files
        if name.endswith((".gguf", ".md", ".pyc")) or "/server/" in name or "/cli/" in name
    ]
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files
        if name.endswith(".py") and not name.endswith("host_browser.py")
    ]
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path / "camelid.zip")!r})
from importlib import import_module
for name in {modules!r}: import_module(name)
from camelid.backends.webgpu import shaders
print(len(shaders.join(*shaders.names())))
"""
    assert int(run(sys.executable, "-I", "-S", "-c", code)) > 100


@pytest.fixture
def site(build: ModuleType, tmp_path: Path) -> Path:
    """The two archives of a site, from sources."""
    assert PYODIDE.is_dir(), "no Pyodide; npm ci --ignore-scripts installs it"
    (tmp_path / "pyodide").mkdir()
    shutil.copy(PYODIDE / "python_stdlib.zip", tmp_path / "pyodide")
    build.write_archive(tmp_path / "camelid.zip")
    return tmp_path


def files_of(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as opened:
        return {name for name in opened.namelist() if not name.endswith("/")}


def test_the_site_has_the_licences_of_its_libraries(build: ModuleType, tmp_path: Path) -> None:
    packages = tmp_path / "node_modules"
    packages.mkdir()
    for folder in PYODIDE.parent.iterdir():
        (packages / folder.name).symlink_to(folder)
    build.write_licences(tmp_path, packages, ROOT / "LICENSE")
    text = (tmp_path / "licences.txt").read_text()
    for name in ("dompurify", "@jitl/quickjs-ffi-types", "pyodide"):
        assert f"\n{name} {json.loads((packages / name / 'package.json').read_bytes())['version']}, " in text
    assert (ROOT / "LICENSE").read_text().strip() in text
    (packages / "idb").unlink()
    (packages / "idb").mkdir()
    (packages / "idb" / "package.json").write_text('{"name": "idb", "version": "1", "license": "ISC"}')
    with pytest.raises(SystemExit, match=r"no licence in .*idb"):
        build.write_licences(tmp_path, packages, ROOT / "LICENSE")


def test_pages_get_the_same_modules_as_bytecode(build: ModuleType, site: Path) -> None:
    """All modules of the core, and the standard library modules that a page loads; e2e runs them."""
    assert build.find_node(), "Node.js is missing; .ci/setup test installs it"
    core, stdlib = site / "camelid.zip", site / "pyodide" / "python_stdlib.zip"
    sources, library = files_of(core), files_of(stdlib)
    CACHE.mkdir(parents=True, exist_ok=True)
    build.precompile(site, PYODIDE, CACHE)
    assert files_of(core) == {f"{name}c" if name.endswith(".py") else name for name in sources}
    names = files_of(stdlib)
    assert {name.removesuffix("c") if name.endswith(".pyc") else name for name in names} == library
    assert {"json/__init__.pyc", "asyncio/events.pyc", "smtplib.py"} <= names


@pytest.mark.parametrize("node", [None, sys.executable], ids=["absent", "of no use"])
def test_without_node_pages_get_sources(
    node: str | None,
    build: ModuleType,
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(build, "find_node", lambda: node)
    sources = files_of(site / "camelid.zip")
    build.precompile(site, PYODIDE, site)
    build.take_snapshot(site, PYODIDE, site)
    assert files_of(site / "camelid.zip") == sources
    said = capsys.readouterr().err
    assert "pages will compile their Python" in said and "pages will import their Python" in said
    assert not [*site.glob("bytecode-*"), *site.glob("snapshot*")]


def test_an_incomplete_cache_is_rebuilt(
    build: ModuleType, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build removed a file of the cache: the site's files are complete and from one build."""
    made = [b"library", b"core"]
    monkeypatch.setattr(build, "make_bytecode", lambda *_: made)
    archives = [site / name for name in build.ARCHIVES]
    sources = [path.read_bytes() for path in archives]
    for gone in ("", "python_stdlib", "camelid"):
        for path in site.glob(f"bytecode-*-{gone}*") if gone else ():
            path.unlink()
        for path, data in zip(archives, sources, strict=True):
            path.write_bytes(data)
        build.precompile(site, PYODIDE, site)
        assert [path.read_bytes() for path in archives] == made
        assert len(list(site.glob("bytecode-*"))) == 2


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_snapshot_is_reproducible(
    build: ModuleType, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two builds give equal bytes, in which neither time nor chance nor a path of this machine is left."""
    made = list[bytes]()
    for _ in range(2):
        build.take_snapshot(site, PYODIDE, tmp_path_factory.mktemp("cache"))
        made.append((site / "snapshot.bin").read_bytes())
    assert made[0] == made[1]
    assert str(ROOT).encode() not in made[0]


@pytest.mark.slow
def test_modules_that_do_not_compile_end_the_build(build: ModuleType, site: Path) -> None:
    with zipfile.ZipFile(site / "camelid.zip", "w") as archive:
        archive.writestr("broken.py", "def\n")
    with pytest.raises(SystemExit, match=r"did not compile: [\s\S]*SyntaxError"):
        build.precompile(site, PYODIDE, site)


def test_lock_file_names_no_host() -> None:
    """Packages are pinned by version and hash; the registry is the machine's choice."""
    lock = json.loads((ROOT / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert all(
        "resolved" not in package and package["integrity"].startswith("sha512-") for package in packages
    )

"""Builds the static site in build/web: `python web/build.py`.

The site contains the page, Pyodide from node_modules (pinned in package-lock.json), the core as one archive,
a snapshot of Python's memory with the core imported, cria, and .gz and .br siblings of compressible files.
The archives contain bytecode for the modules that a page loads. The build fetches nothing and is
reproducible: equal inputs give equal bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from libraries import LICENCES, VENDOR, copy_libraries, copy_rival, write_licences

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "camelid"
KERNELS = ("wasm-simd", "wasm-relaxed")  # folders, each with a single-threaded and a multi-threaded module
PAGE_FOLDERS = (
    "", "chat", "chat/texts", "client", "images", "models", "models/texts", "glass", "glass/texts",
    "search", "search/texts",
)  # fmt: skip
PACKAGE = ROOT / "web" / "package"
# Files of the site that the npm package has, too; its worker.js is a bundle.
PACKAGED = ("client", *KERNELS, "camelid.zip", "pyodide/pyodide.asm.wasm", "pyodide/python_stdlib.zip")
PAGE_FILES = {".css", ".html", ".ico", ".js", ".json", ".mjs", ".png", ".svg", ".webmanifest"}
# Without the npm package's console*.html, type declarations and source maps.
PYODIDE_FILES = (
    "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip
BYTECODE = ROOT / "web" / "bytecode"
# Prefixes of modules that a page does not use: server, CLI, and modules that need compiled packages.
NOT_IN_BROWSER: tuple[str, ...] = tuple(json.loads((BYTECODE / "left_out.json").read_bytes()))
# Modules of the native package for the page: the WASM backend and its records.
NATIVE = ROOT / "native" / "camelid_native"
NATIVE_IN_BROWSER = (
    "__init__.py", "cpu/__init__.py", "cpu/records.py", "cpu/state_layout.py", "wasm/__init__.py",
    "wasm/backend.py", "wasm/tape.py", "wasm/weights.py",
)  # fmt: skip
COMPRESSIBLE = {".bin", ".gguf", ".txt", ".wasm", ".zip", *PAGE_FILES} - {".ico", ".png"}
SERVICE_WORKER, UNBUILT = "service_worker.js", "unbuilt"
STAMPED = (SERVICE_WORKER, "client/tabs.js", "remembered.js")  # with the build's stamp in place of UNBUILT
ONE_FILE = "one_file"  # folder of the site and of web/: parts of the page that `camelid web --export` writes
ESBUILD = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
RECORDS = "glass/parity.json"
# Files that a page fetches at a press only, so that no visit installs them: wllama (if npm has it), records.
AT_A_PRESS = ("vendor/wllama/", RECORDS, LICENCES)
SETTINGS = ("models/hub.json",)
SNAPSHOT = ROOT / "web" / "snapshot"
ARCHIVES = ("pyodide/python_stdlib.zip", "camelid.zip")
WRONG_PYTHON = 3  # exit code of precompile.mjs and make.mjs if Python raises an error
EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's earliest date: archives must not depend on the time of the build


def archive_members() -> Iterator[tuple[str, Path]]:
    """(name in the archive, path) of every file of the core that a page uses."""
    for path in CORE.rglob("*"):
        name = path.relative_to(CORE).as_posix()
        if path.is_dir() or "__pycache__" in path.parts or path.suffix in {".gguf", ".md", ".pyc"}:
            continue
        if not name.startswith(NOT_IN_BROWSER):
            yield f"camelid/{name}", path
    for name in NATIVE_IN_BROWSER:
        yield f"camelid_native/{name}", NATIVE / name
    for path in (ROOT / "shaders").glob("*.wgsl"):
        yield f"camelid/_shaders/{path.name}", path


def write_archive(target: Path) -> None:
    """Writes the core's archive with sorted names and a fixed date, so equal sources give equal bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in sorted(archive_members()):
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, path.read_bytes())


def copy_page(site: Path) -> None:
    """Copies the page's own files."""
    for folder in PAGE_FOLDERS:
        (site / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((ROOT / "web" / folder).iterdir()):
            if path.suffix in PAGE_FILES and path != VENDOR:
                shutil.copy2(path, site / folder / path.name)


def copy_pyodide(site: Path, package: Path) -> None:
    """Copies Pyodide; exits with a hint if the npm package is missing."""
    missing = [name for name in PYODIDE_FILES if not (package / name).exists()]
    if missing:
        sys.exit(f"web/build.py: no {missing[0]} in {package}; run: npm ci --omit=dev --ignore-scripts")
    (site / "pyodide").mkdir()
    for name in PYODIDE_FILES:
        shutil.copy2(package / name, site / "pyodide" / name)


def write_records(site: Path) -> None:
    """Writes the recorded cases of the gate for the glass box; prints a hint if this Python lacks NumPy."""
    command = [sys.executable, "-m", "camelid.backends.proof.recorded", site / RECORDS]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "core")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        print(f"web/build.py: no {RECORDS}: {done.stderr.strip()[-300:]}", file=sys.stderr)


def copy_kernels(site: Path) -> None:
    """Copies the WASM modules, of which a page fetches one; prints a hint for each missing variant."""
    missing = [name for name in KERNELS if not any((NATIVE / "lib" / name).glob("*.wasm"))]
    for name in KERNELS:
        (site / name).mkdir()
        for module in sorted((NATIVE / "lib" / name).glob("*.wasm")):
            shutil.copy2(module, site / name / module.name)
    if missing:
        command = " ".join(["python -m camelid_native.build", *(f"--target {name}" for name in missing)])
        print(
            f"web/build.py: no kernels {', '.join(missing)}: WebGPU only; to build them: {command}",
            file=sys.stderr,
        )


def copy_cria(site: Path) -> None:
    """Copies the model cria; prints a hint if it is missing."""
    cria = CORE / "data" / "cria.gguf"
    if cria.exists():
        shutil.copy2(cria, site / cria.name)
    else:
        print(f"web/build.py: no {cria}; the page will ask for a model", file=sys.stderr)


def find_node() -> str | None:
    """Path of Node.js: from this Python environment (if the system's is too old), else from PATH."""
    return shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")


def precompile(site: Path, pyodide: Path, cache: Path) -> None:
    """Replaces sources in the archives by bytecode, cached in `cache`; without Node.js they stay sources."""
    archives = [site / name for name in ARCHIVES]
    stamp = digest(*archives, pyodide / "pyodide.asm.wasm", *sorted(BYTECODE.glob("*.*")))
    entries = [cache / f"bytecode-{stamp}-{archive.name}" for archive in archives]
    made = kept(entries, lambda: make_bytecode(pyodide, archives))
    for archive, data in zip(archives, made, strict=False):
        archive.write_bytes(data)


def make_bytecode(pyodide: Path, archives: Sequence[Path]) -> list[bytes]:
    """Compiles the archives' modules in Pyodide under Node.js. Returns [] if Node.js is missing or fails."""
    with tempfile.TemporaryDirectory() as folder:
        if not run_node("compile", BYTECODE / "precompile.mjs", pyodide, *archives, folder):
            return []
        return [Path(folder, archive.name).read_bytes() for archive in archives]


def take_snapshot(site: Path, pyodide: Path, cache: Path) -> None:
    """Writes the memory snapshot from which pages start, cached in `cache`; without Node.js there is none."""
    archives = [site / name for name in ARCHIVES]
    stamp = digest(*archives, *(pyodide / name for name in PYODIDE_FILES), *sorted(SNAPSHOT.glob("*.*")))
    for data in kept([cache / f"snapshot-{stamp}.bin"], lambda: make_snapshot(pyodide, archives)):
        (site / "snapshot.bin").write_bytes(data)


def make_snapshot(pyodide: Path, archives: Sequence[Path]) -> list[bytes]:
    """Imports the core in Pyodide under Node.js. Returns its memory; [] if Node.js is missing or fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "snapshot.bin")
        made = run_node("import", SNAPSHOT / "make.mjs", pyodide, *archives, out)
        return [out.read_bytes()] if made else []


def run_node(work: str, script: Path, *arguments: Path | str) -> bool:
    """Runs a script with Pyodide. If Node.js is missing or fails, prints which work is left to pages."""
    node = find_node()
    if node is None:
        return left_to_pages(work, "no Node.js")
    command = [node, script, *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode == WRONG_PYTHON:
        sys.exit(f"web/build.py: the page's Python did not {work}: {done.stderr[-2000:]}")
    return not done.returncode or left_to_pages(work, f"{node} failed ({done.stderr.strip()[-300:]})")


def left_to_pages(work: str, why: str) -> bool:
    """Prints a warning that pages do a part of the build's work. Returns False."""
    print(f"web/build.py: {why}: pages will {work} their Python at each visit", file=sys.stderr)
    return False


def kept(entries: Sequence[Path], make: Callable[[], list[bytes]]) -> list[bytes]:
    """Content of the cache's entries; makes them if they are missing, in place of those of other stamps."""
    try:
        return [path.read_bytes() for path in entries]
    except FileNotFoundError:
        made = make()
    for path, data in zip(entries, made, strict=False):
        keep(path, data)
    kind = entries[0].name.partition("-")[0]
    for old in {*entries[0].parent.glob(f"{kind}-*")} - {*entries} if made else ():
        with suppress(OSError):  # another build has removed it or, on Windows, is reading it
            old.unlink()
    return made


def digest(*files: Path) -> str:
    """Hash of the files' bytes, 16 hex digits."""
    hashes = [hashlib.sha256(path.read_bytes()).digest() for path in files]
    return hashlib.sha256(b"".join(hashes)).hexdigest()[:16]


def encoders() -> dict[str, Callable[[bytes], bytes]]:
    """Suffix -> compressor; Brotli only if its package is installed."""
    found: dict[str, Callable[[bytes], bytes]] = {".gz": lambda data: gzip.compress(data, 9, mtime=0)}
    try:
        import brotli
    except ModuleNotFoundError:
        return found
    # Quality 10 makes Pyodide's .wasm a tenth smaller and takes seven times as long.
    found[".br"] = lambda data: brotli.compress(data, quality=9)
    return found


def compress(path: Path, site: Path, cache: Path) -> None:
    """Writes .gz and .br siblings of a file if they save at least a tenth; `cache` has the last build's."""
    data, name = path.read_bytes(), "-".join(path.relative_to(site).parts)
    for suffix, encode in encoders().items():
        packed = cached(cache / f"{name}{suffix}", data, lambda encode=encode: encode(data))
        if len(packed) < 0.9 * len(data):
            Path(f"{path}{suffix}").write_bytes(packed)


def cached(entry: Path, source: bytes, make: Callable[[], bytes]) -> bytes:
    """Result of `make()`, cached by the bytes of `source`."""
    stamp = hashlib.sha256(source).digest()
    if entry.exists() and (old := entry.read_bytes()).startswith(stamp):
        return old.removeprefix(stamp)
    packed = make()
    keep(entry, stamp + packed)
    return packed


def keep(path: Path, data: bytes) -> None:
    """Writes a file atomically: several builds may share a cache, and any may be killed."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = Path(folder, path.name)
        new.write_bytes(data)
        with suppress(PermissionError):  # on Windows, while another build reads the old file
            new.replace(path)


def assemble(site: Path, pyodide: Path, cache: Path) -> None:
    """Puts all that a worker needs into an empty folder."""
    cache.mkdir(parents=True, exist_ok=True)
    copy_page(site)
    copy_libraries(site, pyodide.parent)
    copy_pyodide(site, pyodide)
    copy_kernels(site)
    write_archive(site / "camelid.zip")
    precompile(site, pyodide, cache)


def build(site: Path, pyodide: Path, cache: Path) -> None:
    """Builds the site; deletes an existing folder `site` first."""
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    assemble(site, pyodide, cache)
    copy_cria(site)
    copy_rival(site, pyodide.parent)
    write_licences(site, pyodide.parent, ROOT / "LICENSE")
    write_records(site)
    take_snapshot(site, pyodide, cache)
    write_version(site)
    for path in sorted(site.rglob("*")):
        if path.suffix in COMPRESSIBLE:
            compress(path, site, cache)
    make_one_file(site)


def make_one_file(site: Path) -> None:
    """Prepares the page of one file; prints a hint without Node.js and esbuild. No visit fetches them."""
    node = find_node()
    if node and ESBUILD.exists():
        script = ROOT / "web" / ONE_FILE / "make.mjs"
        subprocess.run([node, script, site, site / ONE_FILE], check=True)
    else:
        print("web/build.py: no Node.js or no esbuild: no `camelid web --export`", file=sys.stderr)


def write_version(site: Path) -> None:
    """Writes files.json, which names the site's files, and the build's stamp into STAMPED.

    files.json is {"build", "files": {path: SHA-256}}; the hash is "" if a server answers by a setting.
    The stamp changes with any file, and by it browsers see a new service worker.
    """
    paths = [path for path in sorted(site.rglob("*")) if path.is_file() and path.suffix not in {".br", ".gz"}]
    names = {path.relative_to(site).as_posix(): path for path in paths}
    names = {name: path for name, path in names.items() if not name.startswith(AT_A_PRESS)}
    hashes = {name: sha256(path) for name, path in names.items()}
    stamp = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:16]
    for name in STAMPED:
        write_stamp(site / name, stamp)
        hashes[name] = sha256(site / name)
    del hashes[SERVICE_WORKER]  # browsers fetch it past any service worker
    files = hashes | dict.fromkeys(SETTINGS, "")
    (site / "files.json").write_text(json.dumps({"build": stamp, "files": files}), "utf-8", newline="\n")


def write_stamp(path: Path, stamp: str) -> None:
    path.write_text(path.read_text("utf-8").replace(UNBUILT, stamp), "utf-8", newline="\n")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_package(package: Path, pyodide: Path, cache: Path) -> None:
    """Builds the folder of the npm package; deletes an existing one first."""
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("worker.js"))
    shutil.copy2(ROOT / "LICENSE", package / "LICENSE")
    facts = json.loads((PACKAGE / "package.json").read_text()) | {"version": version()}
    (package / "package.json").write_text(json.dumps(facts, indent=2) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        assemble(site, pyodide, cache)
        shutil.copytree(PACKAGE, site / "package")
        bundle(site / "package" / "worker.js", package / "worker.js")
        for name in PACKAGED:
            (package / name).parent.mkdir(exist_ok=True)
            (site / name).replace(package / name)
        write_stamp(package / "client" / "tabs.js", version())


def bundle(entry: Path, target: Path) -> None:
    """Joins a module with all that it imports to a script. Pyodide's imports of Node.js stay imports.

    It runs as a module, but bundlers that minify copied files, as webpack does, take them for scripts.
    """
    node = find_node()
    if node is None or not ESBUILD.exists():
        sys.exit("web/build.py: the package's worker is joined by esbuild; run: npm ci --ignore-scripts")
    how = ("--bundle", "--format=iife", "--log-level=error", "--external:node:*", "--external:ws")
    place = "--define:import.meta.url=self.location.href"
    subprocess.run([node, ESBUILD, entry, *how, place, f"--outfile={target}"], check=True)


def version() -> str:
    """The version of the core, as npm writes it."""
    text = (CORE / "version.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]


def main() -> None:
    """Command line of `python web/build.py`."""
    parser = argparse.ArgumentParser(description="Build the page into a folder of static files.")
    parser.add_argument("site", nargs="?", type=Path, default=ROOT / "build" / "web")
    parser.add_argument("--pyodide", type=Path, default=ROOT / "node_modules" / "pyodide", metavar="DIR")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="cache of builds (default: SITE.cache)")
    parser.add_argument("--package", action="store_true", help="build the npm package instead")
    options = parser.parse_args()
    site: Path = options.site
    make = build_package if options.package else build
    make(site, options.pyodide, options.cache or site.with_name(f"{site.name}.cache"))
    files = (path for path in site.rglob("*") if path.is_file() and path.suffix not in {".br", ".gz"})
    size = sum(path.stat().st_size for path in files)
    print(f"{options.site}: {size / 1e6:.1f} MB before compression")


if __name__ == "__main__":
    main()

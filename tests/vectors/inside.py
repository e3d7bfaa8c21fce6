"""Runs a file of this folder inside Pyodide under Node, on the page's archives."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYODIDE = ROOT / "node_modules" / "pyodide"
CACHE = ROOT / "build" / "web.cache"  # bytecode from the site's build


def inside_pyodide(file: str, function: str, data: Path) -> Any:
    """The JSON result of `function` of `file` for the file `data`. Raises RuntimeError if it fails."""
    build = site_builder()
    site = archives(build, data.parent / "site")
    command = [build["find_node"](), HERE / "pyodide.mjs", site, HERE / file, function, data]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"error": "no output"}
    if done.returncode:
        raise RuntimeError(f"Pyodide under Node: {found['error']}\n{done.stderr}")
    return found


def site_builder() -> dict[str, Any]:
    """The functions of web/build.py, whose imports are beside it."""
    folder = str(ROOT / "web")
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(f"{folder}/build.py")
    finally:
        sys.path.remove(folder)


def archives(build: dict[str, Any], site: Path) -> Path:
    """Writes the archives of the library and of the core into `site`, by web/build.py."""
    (site / "pyodide").mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.copy(PYODIDE / "python_stdlib.zip", site / "pyodide")
    build["write_archive"](site / "camelid.zip")
    build["precompile"](site, PYODIDE, CACHE)
    return site

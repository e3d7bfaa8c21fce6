"""Runs a file of this folder inside Pyodide under Node, on the same archive of Camelid that a page gets."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def inside_pyodide(file: str, function: str, data: Path) -> Any:
    """What `function` of `file` returns, as JSON text, for the file `data`. RuntimeError if it fails."""
    archive = data.with_name("camelid.zip")
    runpy.run_path(str(ROOT / "web" / "build.py"))["write_archive"](archive)
    command = ["node", HERE / "pyodide.mjs", archive, HERE / file, function, data]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"error": "no output"}
    if done.returncode:
        raise RuntimeError(f"Pyodide under Node: {found['error']}\n{done.stderr}")
    return found

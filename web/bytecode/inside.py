"""Compiles Python modules to bytecode of the page's interpreter; runs in Pyodide when the site is built.

Without bytecode a page compiles every module at every visit: 5 of the 8 seconds until Python was ready. All
modules of the core are compiled, and those modules of the standard library that a page loads; the rest stays
source, which is smaller.
"""

import py_compile
import sys
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

IN_STDLIB = f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip/"


def bytecode(name: str, source: bytes) -> bytes:
    """Compiles a module to the content of a .pyc file."""
    Path("/module.py").write_bytes(source)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # a page has no source to check against
    py_compile.compile("/module.py", "/module.pyc", name, doraise=True, invalidation_mode=mode)
    return Path("/module.pyc").read_bytes()


def convert(source: str, target: str, is_wanted: Callable[[str], bool]) -> None:
    """Copies an archive, with .pyc in place of each .py file that `is_wanted` selects."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            name, data = info.filename, old.read(info)
            if name.endswith(".py") and is_wanted(name):
                name, data = f"{name}c", bytecode(name, data)
            one = zipfile.ZipInfo(name, info.date_time)
            one.external_attr = info.external_attr
            new.writestr(one, data, zipfile.ZIP_DEFLATED, 9)


def load_all(archive: str) -> None:
    """Imports every module of an archive, which also loads the standard modules that they need."""
    sys.path.insert(0, archive)
    with zipfile.ZipFile(archive) as opened:
        paths = list(map(Path, opened.namelist()))
    for path in paths:
        if path.suffix == ".py":
            parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
            import_module(".".join(parts))


load_all("/core.zip")
files = [str(getattr(module, "__file__", None)) for module in sys.modules.values()]
loaded = {file.removeprefix(IN_STDLIB) for file in files if file.startswith(IN_STDLIB)}
if "json/__init__.py" not in loaded:
    raise SystemExit(f"no module was loaded from {IN_STDLIB}; has the layout of Pyodide changed?")
convert("/stdlib.zip", "/stdlib.out", loaded.__contains__)
convert("/core.zip", "/core.out", lambda name: True)

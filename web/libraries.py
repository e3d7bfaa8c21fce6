"""Libraries of the page from npm's packages, with their licences."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Libraries of the page: file or folder/ of the site's folder `vendor` -> file or files of node_modules.
VENDOR = Path(__file__).with_name("vendor.json")
LIBRARIES: dict[str, str] = json.loads(VENDOR.read_bytes())
# A worker has no import map, so that a package's name becomes an address.
IMPORTS = {b'"@jitl/quickjs-ffi-types"': b'"./ffi-types.mjs"'}
SOURCE_MAP = b"\n//# sourceMappingURL="  # the site has no source maps
RIVAL = {"index.js": "wllama.js", "wasm/wllama.wasm": "wllama.wasm"}
LICENCES = "licences.txt"
# Pyodide's package has no text of its licences.
PYODIDE_LICENCE = """Mozilla Public License, version 2.0: https://mozilla.org/MPL/2.0/
Source: {homepage}
With CPython and its standard library, Python Software Foundation License:
https://docs.python.org/3/license.html
"""


def copy_libraries(site: Path, packages: Path) -> None:
    """Copies the page's libraries; exits with a hint if a package is missing."""
    for name, pattern in LIBRARIES.items():
        paths = sorted(packages.glob(pattern))
        if not paths:
            sys.exit(f"web/build.py: no {packages / pattern}; run: npm ci --omit=dev --ignore-scripts")
        for path in paths:
            target = site / "vendor" / name / (path.name if name.endswith("/") else "")
            target.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            target.write_bytes(as_module(data) if path.suffix in {".js", ".mjs"} else data)


def copy_rival(site: Path, packages: Path) -> None:
    """Copies wllama for the glass box's race; without the package the page shows how to get it."""
    source, target = packages / "@wllama" / "wllama" / "esm", site / "vendor" / "wllama"
    if not source.is_dir():
        return
    target.mkdir(parents=True)
    for name, copy in RIVAL.items():
        data = (source / name).read_bytes()
        (target / copy).write_bytes(as_module(data) if copy.endswith(".js") else data)


def as_module(script: bytes) -> bytes:
    """A script whose imports a browser resolves, without the address of its source map."""
    for name, address in IMPORTS.items():
        script = script.replace(name, address)
    return script.split(SOURCE_MAP)[0]


def write_licences(site: Path, packages: Path, own: Path) -> None:
    """Writes the licences of Camelid and of all libraries in the site; exits if a package has no text."""
    names = sorted({package_of(pattern) for pattern in LIBRARIES.values()})
    names += ["@wllama/wllama"] if (site / "vendor" / "wllama").is_dir() else []
    texts = {"Camelid": own.read_text("utf-8")}
    for name in names:
        texts[titled(facts_of(packages / name))] = licence_text(packages / name)
    pyodide = facts_of(packages / "pyodide")
    texts[titled(pyodide)] = PYODIDE_LICENCE.format(**pyodide)
    sections = (f"{title}\n{'-' * len(title)}\n\n{text.strip()}\n" for title, text in texts.items())
    (site / LICENCES).write_text("\n\n".join(sections), "utf-8", newline="\n")


def package_of(pattern: str) -> str:
    """The npm package of a path in node_modules: "katex", "@jitl/quickjs-ffi-types"."""
    return "/".join(pattern.split("/")[: 2 if pattern.startswith("@") else 1])


def facts_of(package: Path) -> dict[str, Any]:
    return json.loads((package / "package.json").read_bytes())


def titled(facts: dict[str, Any]) -> str:
    return "{name} {version}, {license}".format(**facts)


def licence_text(package: Path) -> str:
    found = sorted(path for path in package.iterdir() if path.name.upper().startswith(("LICENSE", "LICENCE")))
    if not found:
        sys.exit(f"web/build.py: no licence in {package}; a page must not be built without it")
    return "\n\n".join(path.read_text("utf-8") for path in found)

"""Copies the page's libraries from node_modules to the site's folder `vendor`, each as ES modules."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

QUICKJS, VARIANT = "quickjs-emscripten-core/dist", "@jitl/quickjs-wasmfile-release-sync/dist"
# File of the site -> file of node_modules.
FILES: Mapping[str, str] = {
    "idb.js": "idb/build/index.js",
    "marked.js": "marked/lib/marked.esm.js",
    "purify.js": "dompurify/dist/purify.es.mjs",
    "highlight.js": "@highlightjs/cdn-assets/es/highlight.min.js",
    "katex/katex.mjs": "katex/dist/katex.mjs",
    "katex/katex.min.css": "katex/dist/katex.min.css",
    "quickjs/index.mjs": f"{QUICKJS}/index.mjs",
    "quickjs/ffi-types.mjs": "@jitl/quickjs-ffi-types/dist/index.mjs",
    "quickjs/ffi.mjs": f"{VARIANT}/ffi.mjs",
    "quickjs/emscripten-module.mjs": f"{VARIANT}/emscripten-module.browser.mjs",
    "quickjs/emscripten-module.wasm": f"{VARIANT}/emscripten-module.wasm",
}
# Folder of the site -> files of node_modules.
FOLDERS: Mapping[str, str] = {
    "katex/fonts": "katex/dist/fonts/*.woff2",
    "quickjs": f"{QUICKJS}/*-*.mjs",
}
# A worker has no import map, so that names of packages become addresses.
PACKAGES: Mapping[bytes, bytes] = {b'"@jitl/quickjs-ffi-types"': b'"./ffi-types.mjs"'}
SOURCE_MAP = b"\n//# sourceMappingURL="  # without the maps themselves


def sources(packages: Path) -> Iterator[tuple[str, Path]]:
    """(name in `vendor`, path) of every file."""
    for name, source in FILES.items():
        yield name, packages / source
    for folder, pattern in FOLDERS.items():
        for path in sorted(packages.glob(pattern)):
            yield f"{folder}/{path.name}", path


def copy_libraries(site: Path, packages: Path) -> None:
    """Copies the libraries; exits with a hint if a package is missing."""
    for name, path in sources(packages):
        if not path.exists():
            sys.exit(f"web/build.py: no {path}; run: npm ci --omit=dev --ignore-scripts")
        target = site / "vendor" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in {".js", ".mjs"}:
            target.write_bytes(as_module(path.read_bytes()))
        else:
            shutil.copyfile(path, target)


def as_module(script: bytes) -> bytes:
    """A script whose imports a browser can resolve, without a reference to its source map."""
    for name, address in PACKAGES.items():
        script = script.replace(name, address)
    return script.split(SOURCE_MAP)[0] + b"\n"

"""The page as one HTML file, with Pyodide, the core, the kernels and a model inside.

The file is the site's one_file/shell.html (made by web/one_file/make.mjs) with parts in base64. Each part is
in a script element, which the page's boot script decodes and drops while the browser reads the file. Files
that compress are stored as gzip. Equal inputs give equal bytes.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from camelid.api.sessions.file import write_atomically
from camelid.errors import BackendError, ModelFormatError, RequestError
from camelid.formats.progress import Progress
from camelid.loading.model_file import ModelFile
from camelid.server.site import WAYS

FOLDER = "one_file"  # of the site
MARK = b"<!--parts-->\n"  # of shell.html
SCRIPT, MODEL = "text/javascript", "model"
MEDIA_TYPES = {
    ".css": "text/css",
    ".js": SCRIPT,
    ".mjs": SCRIPT,
    ".txt": "text/plain",
    ".wasm": "application/wasm",
}
PART_BYTES = 6 << 20  # a multiple of 3, so that base64 pads only a file's last part
MOST_MODEL_BYTES = 1_000_000_000  # README of web/one_file: the largest file that was tried
WORTH = 0.9  # a file that compresses to less is stored compressed


@dataclass(frozen=True, slots=True)
class Embedded:
    """A file inside the page. `n_bytes` counts what is stored; `encoding` is "gzip" or empty."""

    name: str
    kind: str  # its media type, or "model"
    n_bytes: int
    opened: Callable[[], BinaryIO]
    encoding: str = ""


def export(site: Path, model: ModelFile, target: Path, progress: Progress | None = None) -> int:
    """Writes the page with a GGUF model to `target`, as a whole or not at all. Returns the file's bytes.

    `progress` gets the name of the embedded file, and bytes of all. Raises RequestError for a model that one
    file does not hold, BackendError for a site without the parts of one file, ModelFormatError for a file
    that cannot be read or written.
    """
    head, tail = shell(site)
    inside = [*files_of_site(site), *files_of_model(model)]

    def pieces() -> Iterator[bytes]:
        yield head
        yield from elements(inside, progress)
        yield tail

    write_atomically(target, pieces())
    return target.stat().st_size


def shell(site: Path) -> tuple[bytes, bytes]:
    """The HTML before and after the parts. Raises BackendError if the site has none."""
    path = site / FOLDER / "shell.html"
    if not path.is_file():
        text = f"{site} was built without the parts of one file, which need Node.js and esbuild: {WAYS}"
        raise BackendError(text, backend="server")
    head, mark, tail = path.read_bytes().partition(MARK)
    if not mark:
        raise BackendError(f"{path} has no {MARK.decode()}; build the page again", backend="server")
    return head, tail


def files_of_site(site: Path) -> list[Embedded]:
    """The page's script, which comes first and shows the progress of the rest; then the other files."""
    listing: dict[str, list[str]] = json.loads((site / FOLDER / "files.json").read_bytes())
    names = [*listing["scripts"], *listing["files"]]
    return [file_of_site(site, name) for name in names]


def file_of_site(site: Path, name: str) -> Embedded:
    """A file of the site; a script or style sheet in its form for one file."""
    own = site / FOLDER / name
    try:
        data = (own if own.is_file() else site / name).read_bytes()
    except OSError as error:
        text = f"{site} is not complete: no {name}; build the page again"
        raise BackendError(text, backend="server") from error
    kind = MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream")
    packed = gzip.compress(data, 6, mtime=0)
    if len(packed) < WORTH * len(data):
        return Embedded(name, kind, len(packed), lambda: BytesIO(packed), "gzip")
    return Embedded(name, kind, len(data), lambda: BytesIO(data))


def files_of_model(model: ModelFile) -> list[Embedded]:
    """The model's GGUF file, or all its parts.

    Raises RequestError for another format, and for a model beyond MOST_MODEL_BYTES.
    """
    if model.directory:
        text = f"{model.name}: pages open GGUF files; camelid convert {model.name} OUT.gguf makes one"
        raise RequestError(text, field="model")
    paths = [Path(source.name) for source in model.origins.values()]
    n_bytes = sum(path.stat().st_size for path in paths)
    if n_bytes > MOST_MODEL_BYTES:
        text = (
            f"{model.name} has {n_bytes:,} bytes; one file holds models of up to {MOST_MODEL_BYTES:,}. "
            "Quantize it (camelid quantize), or serve the page (camelid web) and open the model there"
        )
        raise RequestError(text, field="model")
    return [file_of_model(path) for path in paths]


def file_of_model(path: Path) -> Embedded:
    """A GGUF file; its weights do not compress."""

    def opened() -> BinaryIO:
        try:
            return path.open("rb")
        except OSError as error:
            raise ModelFormatError(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error

    return Embedded(path.name, MODEL, path.stat().st_size, opened)


def elements(inside: Sequence[Embedded], progress: Progress | None) -> Iterator[bytes]:
    """The parts as HTML, one at a time."""
    total, done = sum(file.n_bytes for file in inside), 0
    for file in inside:
        for data, is_last in parts(file):
            done += len(data)
            yield element(file, data, is_last, total)
            if progress:
                progress(file.name, done, total)


def parts(file: Embedded) -> Iterator[tuple[bytes, bool]]:
    """The stored bytes in parts, each with whether it is the last.

    Raises ModelFormatError if the file has another size by now.
    """
    left = file.n_bytes
    with file.opened() as stream:
        while left:
            data = stream.read(min(PART_BYTES, left))
            left -= len(data)
            if not data or (not left and stream.read(1)):
                text = f"{file.name} changed while it was read; export again"
                raise ModelFormatError(text, path=file.name)
            yield data, not left


def element(file: Embedded, data: bytes, is_last: bool, total: int) -> bytes:
    """A part as a script element that no browser runs, and the call that takes it."""
    facts = {"name": file.name, "type": file.kind, "encoding": file.encoding, "total": str(total)}
    facts |= {"last": ""} if is_last else {}
    told = "".join(f' data-{name}="{escape(value)}"' for name, value in facts.items())
    opening = f'<script type="application/octet-stream"{told}>'.encode()
    return b"".join((opening, base64.b64encode(data), b"</script><script>take()</script>\n"))

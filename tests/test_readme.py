"""READMEs equal the code: tables of architectures and of support, names of files."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.support.arch_rows import row_lines
from tests.support.node_host import wasm_backend

from camelid.backends.base import Backend, Capabilities, OpenSpec
from camelid.backends.registry import open_backend
from camelid.formats.quants import GGUF_TYPES, QUANTS
from camelid.model.archs import ARCHS

ROOT = Path(__file__).parents[1]
FRONT = ROOT / "README.md"
FOLDERS = ("core", "e2e", "native", "shaders", "tests", "web")
FOUND = sorted(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))
PAGES = [FRONT, *(page for page in FOUND if "node_modules" not in page.parts)]
ACTIVATIONS = {"q8_1", "q8_k"}  # types of llama.cpp's rounded activations, which no file stores
PAGE = ROOT / "core/camelid/model/ARCHITECTURES.md"
FIGURE = r"(?:[\d.]+e-\d+|with images)"
REFUSAL = r"refused: [\w,' ]+"
CELLS = (r"[\w ]+", FIGURE, FIGURE, f"(?:{FIGURE}|{REFUSAL})", r"[\w, .]+")  # oracle to refused settings
AFTER = r" \| ".join(CELLS)
ROW = re.compile(rf"^\| `([\w-]+)` \| .* \| (\d+) \| {AFTER} \|$", re.MULTILINE)


def named_files(page: Path) -> list[str]:
    """Source files that a page names, and its links to this repository."""
    text = page.read_text("utf-8").replace("Node.js", "")
    return re.findall(r"[\w./]+\.(?:py|c|h|mjs|js|wgsl)\b", text) + re.findall(r"\]\(([^:)#]+)[)#]", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_of_a_page_exist(page: Path) -> None:
    """Names are relative to the page, to a folder below it, to core/camelid, to tests or to the root."""
    bases = (page.parent, ROOT, ROOT / "core/camelid", ROOT / "tests")
    missing = [name for name in named_files(page) if not any((base / name).exists() for base in bases)]
    assert not [name for name in missing if not any(page.parent.rglob(name))]


def test_the_front_page_counts_the_architectures() -> None:
    assert f"[{len(ARCHS)} architectures]" in FRONT.read_text()


def test_the_table_of_architectures_is_true() -> None:
    assert {name: int(n) for name, n in ROW.findall(PAGE.read_text())} == row_lines()


def support(column: str) -> dict[str, str]:
    """A column of the front page's table, by the name of the row; "as cpu" is the cell of cpu."""
    table = re.findall(r"^\|(.*)\|$", FRONT.read_text().split("## Support")[1].split("## ")[0], re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in table)
    at, cpu = head.index(column), head.index("cpu")
    return {row[0]: row[cpu] if row[at] == "as cpu" else row[at] for row in rows}


def opened(backend: Backend) -> Capabilities:
    """The capabilities of a backend on this machine."""

    async def read() -> Capabilities:
        await backend.open(OpenSpec())
        capabilities = backend.capabilities()
        await backend.close()
        return capabilities

    return asyncio.run(read())


def capabilities_of(column: str) -> Capabilities:
    if column == "webgpu":  # its kernels do not depend on the device, which this machine may lack
        return open_backend("webgpu").capabilities()
    return opened(wasm_backend() if column == "browser, CPU" else open_backend(column))


def types_of(cell: str) -> set[str]:
    """The weight types that a cell states, with the number of GGUF's types checked."""
    every = {*GGUF_TYPES} - ACTIVATIONS
    names = {name.lower() for name in re.findall(r"[A-Z]+\d\w*", cell)}
    number = re.search(r"\b(\d+) of GGUF", cell)
    types = every - names if number else names
    assert not number or int(number[1]) == len(types)
    return types


@pytest.mark.parametrize("column", ["cpu", "webgpu", "mlx", "browser, CPU", "reference"])
def test_the_support_of_a_backend_is_true(column: str) -> None:
    cells, can = support(column), capabilities_of(column)
    assert types_of(cells["weight types"]) == can.weight_types & GGUF_TYPES
    reads_mlx = QUANTS.keys() - GGUF_TYPES <= can.weight_types
    assert (cells["directories that MLX quantized"] == "yes") == reads_mlx
    recurrent = {"scan_mamba2", "scan_delta"} <= can.ops
    found = {
        "recurrent layers (mamba2, DeltaNet)": recurrent,
        "device sampling": "sample" in can.ops,
        "run-ahead: steps submitted before a result is read": can.max_in_flight > 1,
        "bit-identical results with other requests in the batch (promise A)": "A" in can.promise,
    }
    assert {name: cells[name].startswith("yes") for name in found} == found
    promise_b = cells["bit-identical results under chunking, cache hits and preemption (promise B)"]
    assert promise_b.startswith("yes") == ("B" in can.promise)

"""Import arrows point down only, and the core is the standard library outside its doors."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "core" / "camelid"

# What the engine's layer shows above itself.
FACE = {
    "llm",
    "verbs",
    "chat",
    "messages",
    "asking",
    "guiding",
    "grammars",
    "sessions",
    "options",
    "runner",
    "loading",
    "opening",
    "converting",
    "footprint",
}
ENGINE = {*FACE, "engine", "sampling", "answers", "evaluation"}
MIDDLE = {"model", "text", "plan", "formats", "backends"}
# Layer -> the layers that it may import, besides itself and errors.
ARROWS: dict[str, set[str]] = {
    "cli": {"server", "engine", "shaders", "package", *MIDDLE},
    "server": {"engine", "package", *MIDDLE},
    "web": {"engine"},  # the page's side of Python
    "engine": MIDDLE,
    "model": {"plan", "formats"},
    "backends": {"plan", "formats", "shaders"},
    "plan": set(),
    "formats": set(),
    "text": set(),
    "shaders": set(),
    "errors": set(),
    "data": set(),
    "package": {"engine", "text"},  # camelid/__init__.py, lazily
    "__main__": {"cli"},
}
# One module of a layer, where the whole layer would be too much.
EXTRA_ARROWS = {
    "engine": {"camelid.__version__"},  # session files say who wrote them
    "backends": {"camelid.__version__"},  # a stored verdict holds for one version
    "plan": {"camelid.formats.quants"},  # block sizes: a table of standard-library data
    # Tables that turn a tokenizer.json into GGUF's words: splitters, token types, names of end tokens.
    "formats": {
        "camelid.text.pretokenize",
        "camelid.text.published",
        "camelid.text.vocab",
        "camelid.text.metadata",
        "camelid.text.unigram",
        *(
            f"camelid.text.hf.{name}"
            for name in (
                "models",
                "normalizers",
                "processors",
                "regexes",
                "roles",
                "tokenizer",
                "values",
                "vocabulary",
            )
        ),
    },
}
# Door (a file, or a folder with its slash) -> third-party modules that it may import.
DOORS: dict[str, set[str]] = {
    "backends/reference/": {"numpy"},
    "backends/load_ops.py": {"numpy"},
    "backends/part_reader.py": {"numpy"},
    "backends/codecs/": {"numpy"},
    "backends/single.py": {"numpy"},
    "backends/gate/": {"numpy"},
    "backends/webgpu/host_python.py": {"wgpu"},
    "backends/webgpu/host_browser.py": {"js", "pyodide"},
    "cli/": {"click", "rich"},
    "server/": {"starlette", "uvicorn"},
}
# The same, but inside a function only: importing the module must not need the package.
LAZY_DOORS: dict[str, set[str]] = {
    "backends/": {"numpy", "wgpu"},
    "cli/chat_reader.py": {"prompt_toolkit"},
    "cli/bench_llama_cpp.py": {"llama_cpp"},  # a rival, if it is there
    "formats/hub/": {"huggingface_hub"},
    "text/": {"tokenizers"},
}
# Standard library that would betray a layer, and why.
FORBIDDEN: dict[str, dict[str, str]] = {
    "text": {"unicodedata": "its version differs between Pythons; use the tables in data/"},
    "": {"pickle": "models are data, never code", "marshal": "models are data, never code"},
}
# Files that must run with camelid absent.
ALONE = {"backends/webgpu/host_python.py"}


@dataclass(frozen=True)
class Import:
    file: str  # relative to core/camelid
    line: int
    module: str
    lazy: bool  # inside a function, or for the type checker only

    def __str__(self) -> str:
        return f"core/camelid/{self.file}:{self.line} imports {self.module}"


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_of(tree: ast.AST, file: str, lazy: bool = False) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(file, node.lineno, name, lazy) for name in from_modules(node))
        elif isinstance(node, ast.Call) and (name := import_module_argument(node)):
            yield Import(file, node.lineno, name, lazy=True)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        yield from imports_of(node, file, lazy or inside)


def from_modules(node: ast.ImportFrom) -> list[str]:
    if node.module in {"camelid", "camelid.backends", "camelid.model"}:  # names that may be modules
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [node.module or "." * node.level]


def import_module_argument(call: ast.Call) -> str | None:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    if called == "import_module" and isinstance(first, ast.Constant):
        return str(first.value)
    return None


def layer_of(parts: list[str]) -> str:
    name = parts[0].removesuffix(".py") if parts else "__init__"
    if name in ENGINE:
        return "engine"
    return name if name in ARROWS else "package"


def all_imports() -> list[Import]:
    found: list[Import] = []
    for path in sorted(CORE.rglob("*.py")):
        file = path.relative_to(CORE).as_posix()
        found += imports_of(ast.parse(path.read_text("utf-8")), file)
    return found


def breaks_arrow(found: Import) -> str | None:
    if not found.module.startswith("camelid"):
        return None
    if found.file in ALONE:
        return f"{found}, but must run where camelid is absent"
    source, target = layer_of(found.file.split("/")), layer_of(found.module.split(".")[1:])
    if target in {source, "errors"} | ARROWS[source] or found.module in EXTRA_ARROWS.get(source, set()):
        return None
    return f"{found}: {source} may import {sorted(ARROWS[source] | {'errors'})}, not {target}"


def breaks_door(found: Import) -> str | None:
    top = found.module.split(".")[0]
    if top == "camelid" or top == "__future__":
        return None
    for layer, modules in FORBIDDEN.items():
        if top in modules and found.file.startswith(layer):
            return f"{found}: {modules[top]}"
    if top in sys.stdlib_module_names:
        return None
    doors = [DOORS, LAZY_DOORS] if found.lazy else [DOORS]
    allowed: set[str] = set()
    for door in doors:
        allowed = allowed.union(*(modules for place, modules in door.items() if found.file.startswith(place)))
    return None if top in allowed else f"{found}: not the standard library, and no door for it here"


def test_every_folder_is_a_known_layer() -> None:
    names = {path.name.removesuffix(".py") for path in CORE.iterdir() if path.suffix in {"", ".py"}}
    unknown = names - ENGINE - ARROWS.keys() - {"__init__", "__pycache__"}
    assert not unknown, f"{sorted(unknown)}: name the layer in ARROWS or ENGINE"


def test_import_arrows_point_down() -> None:
    assert [complaint for found in all_imports() if (complaint := breaks_arrow(found))] == []


def test_third_party_modules_enter_by_their_door() -> None:
    assert [complaint for found in all_imports() if (complaint := breaks_door(found))] == []


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("formats/gguf.py", "from camelid.plan.ops import Op", breaks_arrow),
        ("plan/plan.py", "from camelid import model", breaks_arrow),
        ("text/bpe.py", "def f():\n    import camelid.engine.engine", breaks_arrow),
        ("model/archs.py", "import_module('camelid.backends.null')", breaks_arrow),
        ("backends/webgpu/host_python.py", "from camelid.errors import BackendError", breaks_arrow),
        ("engine/engine.py", "import numpy as np", breaks_door),
        ("backends/select.py", "import wgpu", breaks_door),
        ("llm.py", "def f():\n    import js", breaks_door),
        ("text/bpe.py", "import unicodedata", breaks_door),
        ("formats/gguf.py", "import pickle", breaks_door),
    ],
)
def test_rules_catch(file: str, text: str, rule: object) -> None:
    assert callable(rule)
    assert [rule(found) for found in imports_of(ast.parse(text), file) if rule(found)]

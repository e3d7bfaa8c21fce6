"""The packages of `core/camelid` and their allowed imports: each import points down this table.

`tests/test_layers.py` checks every import against the table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CORE = Path(__file__).parents[2] / "core" / "camelid"

# Package -> packages that it may import, besides itself, `errors` and `version`. A name is a path.
ARROWS: dict[str, set[str]] = {
    "__main__": {"cli"},
    "cli": {
        "api", "learning", "witness", "requests", "loading", "server", "engine", "sampling", "model", "plan",
        "images", "text", "formats", "backends/proof", "backends/registry", "backends/common",
        "backends/base",
    },
    "page": {"api", "requests", "engine", "loading", "plan", "images", "text", "backends/base"},
    "ray": {"server", "loading", "backends/remote", "backends/base", "backends/registry"},
    "learning": {"requests", "loading", "engine", "sampling", "training", "model"},
    "witness": {"api", "requests", "loading", "engine", "sampling", "formats"},
    "__init__": {"api"},
    "api": {
        "learning", "requests", "loading", "engine", "sampling", "training", "model", "plan", "text",
        "formats", "backends/registry", "backends/base",
    },
    "requests": {"engine", "sampling", "model", "images", "text", "formats"},
    "loading": {
        "engine", "model", "plan", "images", "text", "formats", "backends/proof", "backends/registry",
        "backends/staged", "backends/parallel", "backends/common", "backends/base",
    },
    "server": {
        "api", "learning", "witness", "requests", "loading", "engine", "sampling", "images", "text",
        "formats",
    },
    "engine": {"sampling", "plan", "backends/base"},
    "training": {"model", "plan", "backends/base"},
    "sampling": {"plan", "backends/base"},
    "model": {"plan", "formats"},
    "backends/proof": {"backends/reference", "backends/common", "backends/base", "plan", "formats"},
    "backends/registry": {"backends/base"},
    "backends/staged": {"backends/common", "backends/base", "plan"},
    "backends/remote": {"backends/common", "backends/base", "plan"},
    "backends/parallel": {"backends/common", "backends/base", "plan"},
    "backends/reference": {"backends/parallel", "backends/common", "backends/base", "plan", "formats"},
    "backends/webgpu": {"backends/common", "backends/base", "plan", "formats"},
    "backends/null": {"backends/common", "backends/base", "plan", "formats"},
    "backends/common": {"backends/base", "plan", "formats"},
    "backends/base": {"plan"},
    "plan": {"formats"},
    "images": set(),
    "text": set(),
    "formats": set(),
    "data": set(),
    "errors": set(),
    "version": set(),
}  # fmt: skip
EVERYWHERE = {"errors", "version"}

# The picture of the README: tiers from the top, and the waists that lie below two of them.
TIERS: dict[str, tuple[str, ...]] = {
    "faces": ("__main__", "cli", "page", "ray", "server", "__init__"),
    "Python API": ("api", "witness"),
    "feedback": ("learning",),
    "words to requests, names to engines": ("requests", "loading"),
    "token ids": ("engine", "sampling", "training"),
    "programs": ("model", "plan"),
    "runs plans": (
        "backends/registry", "backends/proof", "backends/reference", "backends/webgpu", "backends/staged",
        "backends/parallel", "backends/remote", "backends/null", "backends/common", "backends/base",
    ),
    "libraries": ("images", "text", "formats", "data", "errors", "version"),
}  # fmt: skip
WAISTS = {
    "words to requests, names to engines": "waist 1: submit, step, cancel",
    "programs": "waist 2: plan, step, state",
}


@dataclass(frozen=True)
class Import:
    """One imported module; `lazy` for an import inside a function or for the type checker only."""

    file: str  # relative to core/camelid
    line: int
    module: str
    lazy: bool

    def __str__(self) -> str:
        return f"core/camelid/{self.file}:{self.line} imports {self.module}"


def imports_of(tree: ast.AST, file: str, lazy: bool = False) -> Iterator[Import]:
    """Every import below a syntax node, including the string argument of `import_module`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(file, node.lineno, name, lazy) for name in from_modules(node))
        elif isinstance(node, ast.Call) and (name := import_module_argument(node)):
            yield Import(file, node.lineno, name, lazy=True)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        yield from imports_of(node, file, lazy or inside)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def from_modules(node: ast.ImportFrom) -> list[str]:
    """Modules of a from-import: an imported name may be a module itself."""
    base = node.module or "." * node.level
    named = [f"{base}.{alias.name}" for alias in node.names]
    modules = [name if is_module(name) else base for name in named]
    return list(dict.fromkeys(modules))


def is_module(name: str) -> bool:
    place = CORE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def import_module_argument(call: ast.Call) -> str | None:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    if called == "import_module" and isinstance(first, ast.Constant):
        return str(first.value)
    return None


def all_imports() -> list[Import]:
    """Every import of the core."""
    found: list[Import] = []
    for path in sorted(CORE.rglob("*.py")):
        file = path.relative_to(CORE).as_posix()
        found += imports_of(ast.parse(path.read_text("utf-8")), file)
    return found


def package_of_file(file: str) -> str:
    """The package of a path below core/camelid: the longest matching table entry."""
    parts = file.removesuffix(".py").split("/")
    names = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in names if name in ARROWS), parts[0])


def package_of_module(module: str) -> str:
    """The package of a dotted module; `camelid` itself is the package `__init__`."""
    return package_of_file("/".join(module.split(".")[1:]) or "__init__")


def is_own(module: str) -> bool:
    return module.split(".")[0] == "camelid"


def package_arrows() -> set[tuple[str, str]]:
    """The imports between packages."""
    pairs = {
        (package_of_file(i.file), package_of_module(i.module)) for i in all_imports() if is_own(i.module)
    }
    return {(a, b) for a, b in pairs if a != b and b not in EVERYWHERE}


def file_arrows() -> set[tuple[str, str]]:
    """The imports between files, lazy imports included."""
    return {(i.file, file_of_module(i.module)) for i in all_imports() if is_own(i.module)}


def file_of_module(module: str) -> str:
    place = CORE.joinpath(*module.split(".")[1:])
    found = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    return found.relative_to(CORE).as_posix()


def cycles(arrows: set[tuple[str, str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan, 1972), each sorted."""
    targets: dict[str, list[str]] = {}
    for a, b in sorted(arrows):
        targets.setdefault(a, []).append(b)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in targets.get(node, ()):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(targets):
        if node not in index:
            visit(node)
    return found

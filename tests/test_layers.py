"""Imports point down the layer table, without cycles; third-party modules are imported in allowed
files only.
"""

from __future__ import annotations

import ast
import json
import sys

import pytest
from tests.support.layers import (
    ARROWS,
    CORE,
    EVERYWHERE,
    TIERS,
    Import,
    all_imports,
    cycles,
    file_arrows,
    imports_of,
    is_own,
    package_arrows,
    package_of_file,
    package_of_module,
)
from tests.tools.draw_layers import FILE, svg

# Prefixes of modules that a page's archive lacks.
LEFT_OUT = tuple(json.loads((CORE.parents[1] / "web/bytecode/left_out.json").read_bytes()))
# File (or a folder with its slash) -> third-party modules that it may import.
DOORS: dict[str, set[str]] = {
    "backends/reference/": {"numpy"},
    "loading/adapters/": {"numpy"},
    "backends/common/halves.py": {"numpy"},
    "backends/common/join_groups.py": {"numpy"},
    "backends/common/load_ops.py": {"numpy"},
    "backends/common/observer.py": {"numpy"},
    "backends/common/mapped_file.py": {"numpy"},
    "backends/common/part_reader.py": {"numpy"},
    "backends/common/quantize_groups.py": {"numpy"},
    "backends/common/stored_rows.py": {"numpy"},
    "backends/common/codecs/": {"numpy"},
    "backends/common/quantizers/": {"numpy"},
    "backends/common/op_runner.py": {"numpy"},
    "backends/proof/": {"numpy"},
    "backends/remote/": {"zmq"},
    "backends/webgpu/host_python.py": {"wgpu"},
    "backends/webgpu/host_browser.py": {"js", "pyodide"},
    "learning/numpy_kernels.py": {"numpy"},
    "learning/trained/": {"numpy"},
    "page/images.py": {"js", "pyodide"},
    "cli/": {"click", "rich"},
    "cli/perplexity_kl.py": {"numpy"},
    "server/": {"prometheus_client", "starlette", "uvicorn", "uvloop"},
    "server/service/scoring.py": {"numpy"},
    "ray/": {"ray", "starlette"},
}
# As above, but inside a function only: importing the file must not need the package.
LAZY_DOORS: dict[str, set[str]] = {
    "backends/": {"numpy", "wgpu"},
    "cli/chat_reader.py": {"prompt_toolkit"},
    "cli/bench_llama_cpp.py": {"llama_cpp"},  # optional rivals
    "cli/bench_mlx_lm.py": {"mlx", "mlx_lm"},
    "formats/hub/": {"huggingface_hub"},
    "images/": {"PIL"},
    "server/traces.py": {"opentelemetry"},
    "text/": {"tokenizers"},
}
# Standard library modules that break a layer, with the reason.
FORBIDDEN: dict[str, dict[str, str]] = {
    "text": {"unicodedata": "its version differs between Pythons; use the tables in data/"},
    "": {"pickle": "models are data, never code", "marshal": "models are data, never code"},
}
# Files that must run without camelid.
ALONE = {"backends/webgpu/host_python.py"}


def breaks_arrow(found: Import) -> str | None:
    if not is_own(found.module):
        return None
    if found.file in ALONE:
        return f"{found}, but must run where camelid is absent"
    source, target = package_of_file(found.file), package_of_module(found.module)
    if source not in ARROWS:
        return f"{found}: {source} is not in ARROWS of tests/support/layers.py"
    if target in {source, *EVERYWHERE} | ARROWS[source]:
        return None
    return f"{found}: {source} may import {sorted(ARROWS[source] | EVERYWHERE)}, not {target}"


def leaves_the_page(found: Import) -> str:
    """A complaint about a module of pages that imports a module that pages lack, "" if there is none."""
    if found.lazy or found.file.startswith(LEFT_OUT) or not found.module.startswith("camelid."):
        return ""
    file = found.module.removeprefix("camelid.").replace(".", "/") + ".py"
    return f"{found}, which web/bytecode/left_out.json leaves out" if file.startswith(LEFT_OUT) else ""


def breaks_door(found: Import) -> str | None:
    top = found.module.split(".")[0]
    if top == "camelid" or top == "__future__":
        return None
    for package, modules in FORBIDDEN.items():
        if top in modules and found.file.startswith(package):
            return f"{found}: {modules[top]}"
    if top in sys.stdlib_module_names:
        return None
    doors = [DOORS, LAZY_DOORS] if found.lazy else [DOORS]
    allowed: set[str] = set()
    for door in doors:
        allowed = allowed.union(*(modules for place, modules in door.items() if found.file.startswith(place)))
    return None if top in allowed else f"{found}: not the standard library, and no door for it here"


def test_every_file_is_in_a_listed_package() -> None:
    files = (path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py") if path.name != "__init__.py")
    lost = [file for file in files if package_of_file(file) not in ARROWS]
    assert not lost, f"{lost}: add the package to tests/support/layers.py"


def test_imports_point_down() -> None:
    assert [complaint for found in all_imports() if (complaint := breaks_arrow(found))] == []


def test_every_allowed_import_exists() -> None:
    declared = {(package, below) for package, packages in ARROWS.items() for below in packages}
    assert sorted(declared - package_arrows()) == [], "the table allows imports that do not exist"


def test_every_room_is_in_one_tier() -> None:
    rooms = [room for tier in TIERS.values() for room in tier]
    assert sorted(rooms) == sorted(ARROWS)


def test_the_picture_is_drawn_from_the_table() -> None:
    assert FILE.read_text("utf-8") == svg(), "python -m tests.tools.draw_layers draws it again"


def test_no_import_cycles() -> None:
    declared = {(package, below) for package, packages in ARROWS.items() for below in packages}
    assert cycles(declared) == []
    assert cycles(package_arrows()) == []
    assert cycles(file_arrows()) == [], "files import each other in a cycle (lazy imports included)"


def test_cycles_are_detected() -> None:
    assert cycles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}) == [["a", "b", "c"]]


def test_third_party_imports_are_in_allowed_files() -> None:
    assert [complaint for found in all_imports() if (complaint := breaks_door(found))] == []


def test_modules_of_pages_import_modules_of_pages() -> None:
    assert [complaint for found in all_imports() if (complaint := leaves_the_page(found))] == []


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("formats/gguf.py", "from camelid.plan.ops import Op", breaks_arrow),
        ("plan/plan.py", "from camelid import model", breaks_arrow),
        ("text/tokenizers/bpe.py", "def f():\n    import camelid.engine.engine", breaks_arrow),
        ("engine/engine.py", "from camelid.api.llm import LLM", breaks_arrow),
        ("engine/results.py", "from camelid.text.toolcalls.parts import Part", breaks_arrow),
        ("sampling/params.py", "from camelid.formats.gguf import Gguf", breaks_arrow),
        ("model/archs.py", "import_module('camelid.backends.null.backend')", breaks_arrow),
        ("backends/webgpu/host_python.py", "from camelid.errors import BackendError", breaks_arrow),
        ("engine/engine.py", "import numpy as np", breaks_door),
        ("backends/registry.py", "import wgpu", breaks_door),
        ("api/llm.py", "def f():\n    import js", breaks_door),
        ("text/tokenizers/bpe.py", "import unicodedata", breaks_door),
        ("formats/gguf.py", "import pickle", breaks_door),
        ("formats/gguf.py", "from camelid.formats.hf_config import HfDirectory", leaves_the_page),
    ],
)
def test_rules_detect_violations(file: str, text: str, rule: object) -> None:
    assert callable(rule)
    assert [rule(found) for found in imports_of(ast.parse(text), file) if rule(found)]

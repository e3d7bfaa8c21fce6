"""The exported names are sorted, documented in api/README.md, and defined."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import camelid

ROOT = Path(__file__).parents[2]


def documented_names() -> list[str]:
    """The names in the first cells of the table under the marker in core/camelid/api/README.md."""
    text = (ROOT / "core" / "camelid" / "api" / "README.md").read_text("utf-8")
    table = text.split("<!-- exported names -->")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`(\w+)", cell)]


def test_all_is_sorted_without_duplicates() -> None:
    # Ruff's order (RUF022): CONSTANTS, then Classes, then functions.
    def kind(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert camelid.__all__ == sorted(set(camelid.__all__), key=kind)


def test_exported_names_are_the_documented_names() -> None:
    assert sorted(documented_names()) == sorted(camelid.__all__)


@pytest.mark.parametrize("name", camelid.__all__)
def test_exported_name_exists(name: str) -> None:
    assert getattr(camelid, name).__doc__, f"camelid.{name} has no docstring"
    assert name in dir(camelid)


def test_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'lod'; public names: .*load"):
        getattr(camelid, "lod")  # noqa: B009


def test_import_has_no_side_effects() -> None:
    """In a fresh interpreter: no third-party module, and of camelid only the package and its version."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'core')!r}); before = set(sys.modules); import camelid; "
        "new = set(sys.modules) - before; "
        "print(sorted(m for m in new if m.split('.')[0] not in sys.stdlib_module_names))"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "['camelid', 'camelid.version']"


def test_a_prompt_of_text_imports_no_chat() -> None:
    """Templates, tool calls, sessions and grammars come with their first use: imports delay a first token."""
    lazy = (
        "requests.chat",
        "api.sessions",
        "requests.constraints",
        "text.templates",
        "text.toolcalls.parser",
        "text.grammar",
    )
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'core')!r}); import camelid\n"
        "with camelid.load('cria', backend='reference') as llm:\n"
        "    llm.generate('1+1=', max_tokens=1)\n"
        f"    print([name for name in {lazy} if 'camelid.' + name in sys.modules])\n"
        "    llm.session().generate('1', max_tokens=1)\n"
        f"    print([name for name in {lazy[:3]} if 'camelid.' + name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == ["[]", "['requests.chat', 'api.sessions']"]

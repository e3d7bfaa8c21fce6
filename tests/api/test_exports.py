"""The exported names are sorted, documented in the README, and exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import camelid

ROOT = Path(__file__).parents[2]


def documented_names() -> list[str]:
    """Names in the first cell of each row of README's API table, which follows a marker."""
    table = (ROOT / "README.md").read_text("utf-8").split("<!-- exported names -->")[1].split("\n\n")[0]
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
    """In a fresh interpreter: no third-party module, and no module of camelid except the package."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'core')!r}); before = set(sys.modules); import camelid; "
        "new = set(sys.modules) - before; "
        "print(sorted(m for m in new if m.split('.')[0] not in sys.stdlib_module_names))"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "['camelid']"


def test_a_prompt_of_text_imports_no_chat() -> None:
    """Templates, tool calls, sessions and grammars are imported on first use: imports delay a first token."""
    chat = ("chat", "sessions", "grammars", "text.templates", "text.toolcalls.parser", "text.grammar")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'core')!r}); import camelid\n"
        "with camelid.load('cria', backend='reference') as llm:\n"
        "    llm.generate('1+1=', max_tokens=1)\n"
        f"    print([name for name in {chat} if 'camelid.' + name in sys.modules])\n"
        "    llm.session().generate('1', max_tokens=1)\n"
        f"    print([name for name in {chat[:2]} if 'camelid.' + name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == ["[]", "['chat', 'sessions']"]

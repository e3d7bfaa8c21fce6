"""The page of the server's settings, from their rows.

`python -m tests.tools.settings_page` writes it; a test fails where it is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from camelid.cli.serve import default_text
from camelid.server.settings import MODEL_ROWS, ROWS, SECTIONS, Row

FILE = Path(__file__).parents[2] / "core" / "camelid" / "server" / "settings.md"
HEAD = """# Settings of the server

Every setting is a flag of `camelid serve`, an environment variable (`CAMELID_SERVE_` and the key in capitals,
or llama-server's), and a key of the TOML file of `--config`. A flag wins over the environment, which wins
over the file. An unknown key or variable of these names is refused.

A table `[models.NAME]` of the file offers a model: its `file`, further `aliases`, `pinned = true` for one
that is never unloaded, and any key marked with *. This page is made from `settings.py`.
"""


def line(row: Row) -> str:
    """A row of the table."""
    mark = "*" if row.name in MODEL_ROWS else ""
    flags = " ".join(f"`{flag.lstrip(' /')}`" for flag in row.spellings)
    theirs = " ".join(f"`{name}`" for name in row.variables[1:])
    return f"| `{row.name}`{mark} | {flags} | {theirs} | {row.help}{default_text(row.default)} |".replace(
        "&", "&amp;"
    )


def lines() -> Iterator[str]:
    yield HEAD.rstrip()
    for section in SECTIONS.values():
        yield f"\n## {section}\n\n| key | flags | llama-server's variable | meaning |\n|---|---|---|---|"
        yield from (line(row) for row in ROWS.values() if row.section == section)


def page() -> str:
    """The whole page."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")

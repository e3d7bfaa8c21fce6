"""Makes templates.json with transformers: its renderings of every published template and conversation.

Run through `make goldens`: it renders everything again and compares with the committed file; `--write`
replaces it. A row is a hash of seven renderings, one per set of variables of
tests/support/text/conversations.py. The templates are in shared/data/templates, outside the repository.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.text.conversations import CONVERSATIONS, contexts, digest, strftime_now
from transformers.utils import chat_template_utils

FILE = Path(__file__).with_name("templates.json")
SHARED = Path(os.environ.get("CAMELID_SHARED") or Path(__file__).parents[3] / "shared")


class Clock:
    """Stands in for `datetime`, so that no rendering depends on the day."""

    @classmethod
    def now(cls) -> Clock:
        return cls()

    def strftime(self, form: str) -> str:
        return strftime_now(form)


def render(source: str, context: Mapping[str, Any]) -> str | None:
    """transformers' rendering; None for a refusal by transformers or the template."""
    known = dict(context)
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [known.pop("messages")], chat_template=source, **known
        )
    except Exception:
        return None
    return rendered[0]


def made() -> dict[str, dict[str, str]]:
    chat_template_utils.datetime = Clock
    rows: dict[str, dict[str, str]] = {}
    for path in sorted((SHARED / "data" / "templates").glob("*.jinja")):
        source = path.read_text("utf-8")
        rows[path.stem] = {
            name: digest([render(source, context) for context in contexts(name)]) for name in CONVERSATIONS
        }
    return rows


def main() -> int:
    if not (SHARED / "data").is_dir():
        print(f"shared material absent: no {SHARED / 'data'}; set CAMELID_SHARED")
        return 1
    rows = made()
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(rows, indent=0) + "\n")
        return 0
    kept = json.loads(FILE.read_text())
    wrong = [f"{t} x {c}" for t in rows for c in rows[t] if kept.get(t, {}).get(c) != rows[t][c]]
    print(f"{FILE.name}: {len(rows)} templates, differing: {', '.join(wrong) or 'none'}")
    return 1 if wrong or kept.keys() != rows.keys() else 0


if __name__ == "__main__":
    raise SystemExit(main())

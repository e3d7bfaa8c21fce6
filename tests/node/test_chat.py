"""The chat's pure functions in Node: trees, files of conversations, settings, arithmetic, languages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.node_host import need_node

SCRIPT = Path(__file__).with_name("chat.mjs")
NAMES = (
    *(
        "branches",
        "tabs",
        "titles",
        "files",
        "images",
        "damage",
        "arithmetic",
        "ranges",
        "languages",
        "rounds",
        "stopped",
    ),
    *("sessions", "ages"),
)


@pytest.mark.parametrize("name", NAMES)
def test_chat(name: str) -> None:
    command = [need_node(), "--no-warnings", str(SCRIPT), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

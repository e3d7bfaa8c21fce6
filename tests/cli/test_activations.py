"""The option --activations of each command reaches the backend: the reference refuses q8."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from camelid.cli.main import main

REFUSAL = "activations are 'q8', but backend 'reference' has 'f32' only; omit the option"
COMMANDS = {
    "run": ["-p", "Hi"],
    "chat": [],
    "bench": ["-p", "8", "-n", "0"],
    "perplexity": ["-f", "TEXT"],
    "doctor": [],
    "serve": ["--port", "0"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_option_reaches_the_backend(command: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("word " * 100)
    words = [str(text) if word == "TEXT" else word for word in COMMANDS[command]]
    done = CliRunner().invoke(main, [command, *words, "--backend", "reference", "--activations", "q8"])
    assert done.exit_code in (1, 2)
    assert REFUSAL in " ".join(done.output.split())


def test_a_part_on_the_processor_refuses_unrounded_activations() -> None:
    done = CliRunner().invoke(main, ["run", "-p", "Hi", "-ngl", "1", "--activations", "f32"])
    assert (done.exit_code, "backend 'cpu' has 'q8' only" in done.output) == (2, True)

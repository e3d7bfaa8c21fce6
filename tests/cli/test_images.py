"""Images on the command line: `run --image`, `chat` with /image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.vision_chat import write_chat_model
from tests.support.vision_models import image_of, png_of

import camelid
from camelid.cli.main import main

pytest.importorskip("PIL", reason="the extra vision is not installed")
WORDS = "What is this?"
FLAGS = ("--backend", "reference", "-c", "300", "--temp", "1", "--seed", "7", "-n", "24")
DRAWS: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    (place / "one.png").write_bytes(png_of(image_of(5061, 0, [20, 40])))
    write_chat_model(place / "m")
    return place


@pytest.fixture(scope="module")
def answer(folder: Path) -> str:
    """The answer to the image and the words."""
    parts = [{"type": "image", "image": folder / "one.png"}, {"type": "text", "text": WORDS}]
    with camelid.load(folder / "m", backend="reference", context=300) as llm:
        alone = llm.chat([{"role": "user", "content": WORDS}], **DRAWS).text
        text = llm.chat([{"role": "user", "content": parts}], **DRAWS).text
        assert alone != text
        return text


def test_run_puts_an_image_before_the_prompt(folder: Path, answer: str) -> None:
    words = ("run", str(folder / "m"), "-p", WORDS, "--image", str(folder / "one.png"), *FLAGS)
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (0, f"{answer}\n"), done.output


def test_chat_puts_an_image_before_the_next_message(folder: Path, answer: str) -> None:
    typed = f"/image {folder / 'one.png'}\n{WORDS}\n/regenerate\n/undo\n{WORDS}\n"
    done = CliRunner().invoke(main, ["chat", str(folder / "m"), *FLAGS], input=typed)
    shown = done.stdout.splitlines()
    assert (done.exit_code, shown[:2]) == (0, [answer, answer]), done.output
    assert shown[2] != answer  # the words alone
    assert "1 images before the next message" in done.stderr


def test_an_image_needs_the_template_and_a_tower(folder: Path) -> None:
    image = ("--image", str(folder / "one.png"))
    raw = CliRunner().invoke(main, ["run", "cria", "-p", "a", "--raw", *image])
    assert (raw.exit_code, "needs the chat template" in raw.stderr) == (2, True)
    blind = CliRunner().invoke(main, ["run", "cria", "-p", "a", "--backend", "reference", *image])
    assert (blind.exit_code, "takes no images" in blind.stderr) == (1, True)


def test_a_tower_twice_is_refused(folder: Path) -> None:
    words = ("run", str(folder / "m"), "-p", WORDS, "--mmproj", str(folder / "one.png"), *FLAGS)
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, "has a vision tower of its own" in done.stderr) == (1, True), done.output

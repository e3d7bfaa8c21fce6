"""cria as a published directory: it answers, and converts, like its GGUF file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.support.cria_hf import CRIA, write_cria_hf

import camelid
from camelid.loading.convert import convert

PROMPTS = ("What is 12 plus 30?", "Who are you?", "What is the capital of France?")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cria_hf(tmp_path_factory.mktemp("hf") / "cria")


def answers(path: Path) -> list[tuple[int, ...]]:
    with camelid.load(path, backend="reference") as llm:
        chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
        return [tuple(llm.chat(chat, max_tokens=24).token_ids) for chat in chats]


def test_the_directory_answers_like_the_file(directory: Path) -> None:
    assert answers(directory) == answers(CRIA)


def test_both_forms_tokenize_alike(directory: Path) -> None:
    ours, file = camelid.load_tokenizer(directory), camelid.load_tokenizer(CRIA)
    for text in (*PROMPTS, " Zwölf\n\n\tBoxkämpfer 123  <|im_end|>", "🦙 it's"):
        assert ours.encode(text) == file.encode(text)
        assert ours.encode(text, special=True) == file.encode(text, special=True)


def test_the_converted_directory_equals_the_file(directory: Path, tmp_path: Path) -> None:
    """q8_0 of dequantized q8_0 is the same q8_0: every tensor has the shipped file's bytes."""
    convert(directory, tmp_path / "cria.gguf", to="q8_0")
    got, want = (
        {t.name: t for t in gguf.GGUFReader(path).tensors} for path in (tmp_path / "cria.gguf", CRIA)
    )
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert np.array_equal(got[name].data, tensor.data), name
    assert answers(tmp_path / "cria.gguf") == answers(CRIA)

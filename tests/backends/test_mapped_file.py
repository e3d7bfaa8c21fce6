"""A model's file that changes under its mapping: replaced by renaming, written in place, truncated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import camelid
from camelid.api.llm import LLM
from camelid.backends.common.mapped_file import MappedFile
from camelid.errors import DeviceLostError, ModelFormatError

CRIA = Path(camelid.__file__).parent / "data" / "cria.gguf"


@pytest.fixture(params=["cpu", "reference"])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LLM, Path]:
    """A model in use, and its file."""
    path = tmp_path / "model.gguf"
    shutil.copy(CRIA, path)
    return camelid.load(path, backend=request.param, context=128), path


def answer(llm: LLM) -> list[int]:
    return list(llm.generate("the llama", max_tokens=4, temperature=0).token_ids)


def test_a_file_replaced_by_renaming_changes_nothing(loaded: tuple[LLM, Path]) -> None:
    llm, path = loaded
    before = answer(llm)
    other = path.with_suffix(".new")
    other.write_bytes(b"another file")
    other.replace(path)
    assert answer(llm) == before
    llm.close()


@pytest.mark.parametrize("truncates", [True, False])
def test_a_file_written_in_place_ends_the_model_with_an_error(
    loaded: tuple[LLM, Path], truncates: bool
) -> None:
    """Neither other weights in silence, nor a SIGBUS past the file's new end."""
    llm, path = loaded
    answer(llm)
    with path.open("r+b") as file:
        if truncates:
            file.truncate(4096)
        else:
            file.write(b"\0" * 64)
    with pytest.raises(DeviceLostError, match="was written while its weights were in use"):
        answer(llm)
    llm.close()


def test_a_file_that_cannot_be_mapped_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for name in ("empty", "missing"):
        with pytest.raises(ModelFormatError, match=f"{name}: cannot be read"):
            MappedFile(str(tmp_path / name))

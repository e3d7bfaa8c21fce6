"""GGUF in several files, in gguf-split's format: the model equals the single file's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.split_gguf import split

import camelid
from camelid.errors import ModelFormatError

FACTORS = [1.0 + i / 8 for i in range(32)]


def answer(path: Path) -> tuple[int, ...]:
    with camelid.load(path, backend="reference") as llm:
        return tuple(llm.generate([1, 2, 3, 4], max_tokens=8, temperature=0.0).token_ids)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path / "m.gguf", seed=5, rope_freqs=FACTORS)
    return tmp_path / "m.gguf"


def test_shards_are_one_model(whole: Path, tmp_path: Path) -> None:
    paths = split(whole, tmp_path)
    assert answer(paths[0]) == answer(paths[2]) == answer(whole), "every shard opens the model"
    assert camelid.load_tokenizer(paths[2]).vocab_size == camelid.load_tokenizer(whole).vocab_size


def test_a_missing_shard_is_named(whole: Path, tmp_path: Path) -> None:
    paths = split(whole, tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelFormatError, match=r"m-00002-of-00003\.gguf: there is no such file"):
        camelid.load(paths[0])


def test_mismatched_shards_are_refused(whole: Path, tmp_path: Path) -> None:
    paths = split(whole, tmp_path)
    first, second = (path.read_bytes() for path in paths[:2])
    paths[1].write_bytes(first)
    with pytest.raises(ModelFormatError, match="found shard 1 of 3, expected 2 of 3"):
        camelid.load(paths[0])
    key = b"split.no" + struct.pack("<I", 2)
    paths[1].write_bytes(first.replace(key + struct.pack("<H", 0), key + struct.pack("<H", 1)))
    with pytest.raises(ModelFormatError, match="is in an earlier shard too"):
        camelid.load(paths[0])
    paths[1].write_bytes(second)
    assert answer(paths[0])
    with pytest.raises(ModelFormatError, match="tensors, expected 99"):
        camelid.load(split(whole, tmp_path, total=99)[0])


def test_a_shard_name_without_its_number_is_refused(whole: Path, tmp_path: Path) -> None:
    split(whole, tmp_path)[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFormatError, match=r"a name like name-00001-of-00003\.gguf"):
        camelid.load(tmp_path / "renamed.gguf")

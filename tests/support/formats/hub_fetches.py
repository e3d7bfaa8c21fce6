"""Fetches of a model, with contents of a repository and a cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from camelid.errors import CamelidError
from camelid.formats.hub.fetch import Fetched, fetch

DATA = bytes(range(256)) * 2000  # 512,000 bytes: a "model" in several pieces
DIRECTORY = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    "generation_config.json": b"{ }",
    "chat_template.jinja": b"{{ x }}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": DATA[:5000],
    "model-00002-of-00002.safetensors": DATA[1:6000],
    "pytorch_model.bin": b"a pickle" * 500,
    "consolidated.safetensors": DATA[:4000],
    "original/consolidated.00.pth": b"a pickle",
    "README.md": b"# words",
}


def pull(hub_id: str, cache: Path, **words: Any) -> tuple[Fetched, list[str]]:
    said: list[str] = []
    return fetch(hub_id, cache_dir=cache, say=said.append, **words), said


def partials(cache: Path) -> list[Path]:
    return list(cache.glob("models--*/blobs/*.incomplete"))


def refused(hub_id: str, cache: Path, **words: Any) -> CamelidError:
    with pytest.raises(CamelidError) as caught:
        fetch(hub_id, cache_dir=cache, **words)
    return caught.value
